// Descriptors prints the protocols as the public Go packages have them: one line for each field, enum value and
// method, sorted. tests/repository/descriptors.rs prints the same from what moor compiled, and compares.
//
// It is a module of its own, because the Kubernetes module pins an older CSI than moor speaks, and the Kubernetes
// parts have to be built with what they pin.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

var lines []string

func line(format string, arguments ...any) {
	lines = append(lines, fmt.Sprintf(format, arguments...))
}

// marks names the protocol's own options that are set: csi_secret and alpha_*.
func marks(options protoreflect.ProtoMessage) string {
	var names []string
	options.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.IsExtension() && value.Interface() == true {
			names = append(names, string(field.FullName()))
		} else if field.Name() == "deprecated" && value.Bool() {
			names = append(names, "deprecated")
		}
		return true
	})
	sort.Strings(names)
	if len(names) == 0 {
		return ""
	}
	return " [" + strings.Join(names, " ") + "]"
}

func typeOf(field protoreflect.FieldDescriptor) string {
	switch {
	case field.IsMap():
		return "map<" + typeOf(field.MapKey()) + "," + typeOf(field.MapValue()) + ">"
	case field.Message() != nil:
		return string(field.Message().FullName())
	case field.Enum() != nil:
		return string(field.Enum().FullName())
	default:
		return field.Kind().String()
	}
}

func label(field protoreflect.FieldDescriptor) string {
	if oneof := field.ContainingOneof(); oneof != nil {
		return "oneof:" + string(oneof.Name())
	}
	if field.IsMap() {
		return "map"
	}
	return field.Cardinality().String()
}

func message(m protoreflect.MessageDescriptor) {
	if m.IsMapEntry() {
		return
	}
	line("message %s%s", m.FullName(), marks(m.Options()))
	for i := range m.Fields().Len() {
		field := m.Fields().Get(i)
		line("field %s %d %s %s%s", field.FullName(), field.Number(), typeOf(field), label(field), marks(field.Options()))
	}
	for i := range m.Messages().Len() {
		message(m.Messages().Get(i))
	}
	for i := range m.Enums().Len() {
		enum(m.Enums().Get(i))
	}
}

func enum(e protoreflect.EnumDescriptor) {
	line("enum %s%s", e.FullName(), marks(e.Options()))
	for i := range e.Values().Len() {
		value := e.Values().Get(i)
		line("value %s.%s %d%s", e.FullName(), value.Name(), value.Number(), marks(value.Options()))
	}
}

func stream(is bool) string {
	if is {
		return "stream "
	}
	return ""
}

func service(s protoreflect.ServiceDescriptor) {
	line("service %s%s", s.FullName(), marks(s.Options()))
	for i := range s.Methods().Len() {
		method := s.Methods().Get(i)
		line("method %s %s%s -> %s%s%s", method.FullName(),
			stream(method.IsStreamingClient()), method.Input().FullName(),
			stream(method.IsStreamingServer()), method.Output().FullName(), marks(method.Options()))
	}
}

func main() {
	// Keeps the options' own type linked in, so that they are decoded and not left as unknown bytes.
	_ = (*descriptorpb.FieldOptions)(nil)
	for _, file := range []protoreflect.FileDescriptor{
		csi.File_csi_proto,
		registration.File_staging_src_k8s_io_kubelet_pkg_apis_pluginregistration_v1_api_proto,
	} {
		line("package %s %s", file.Package(), file.Syntax())
		for i := range file.Extensions().Len() {
			e := file.Extensions().Get(i)
			line("extension %s %s %d %s", e.FullName(), e.ContainingMessage().FullName(), e.Number(), typeOf(e))
		}
		for i := range file.Messages().Len() {
			message(file.Messages().Get(i))
		}
		for i := range file.Enums().Len() {
			enum(file.Enums().Get(i))
		}
		for i := range file.Services().Len() {
			service(file.Services().Get(i))
		}
	}
	sort.Strings(lines)
	if _, err := fmt.Println(strings.Join(lines, "\n")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
