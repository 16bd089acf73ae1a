// Command mount-driver is a CSI driver that mounts as drivers on Kubernetes' mount library do: a file
// system per volume at the staging path, bound from there to each target, and made read-only at a target
// only after it was bound.
//
// With -register it also says so to kubelet, as the stock registrar beside a driver does. It has only a Node
// service, and a volume is a tmpfs that lives for as long as it is staged.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/mount-utils"
)

func main() {
	socket := flag.String("socket", "", "path of the socket to serve on")
	name := flag.String("name", "", "name that the driver gives itself")
	node := flag.String("node-id", "", "id of the node, for the driver")
	register := flag.String("register", "", "path below plugins_registry at which kubelet is told of the driver; empty: it is not")
	flag.Parse()
	// Without systemd: it would make the mounts in its own namespace, and on a node of these there is none.
	driver := &driver{name: *name, node: *node, mounter: mount.NewWithoutSystemd("")}
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if *register != "" {
		kubelet := &kubelet{name: *name, socket: *socket}
		go func() {
			end(serve(told, *register, func(server *grpc.Server) {
				registration.RegisterRegistrationServer(server, kubelet)
			}))
		}()
	}
	end(serve(told, *socket, func(server *grpc.Server) {
		csi.RegisterIdentityServer(server, driver)
		csi.RegisterNodeServer(server, driver)
	}))
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "mount-driver:", err)
		os.Exit(1)
	}
}

// serve answers calls until the process is told to end.
func serve(told context.Context, socket string, services func(*grpc.Server)) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return err
	}
	// That of a process which was killed is in the way of a new one.
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	services(server)
	go func() {
		<-told.Done()
		server.GracefulStop()
	}()
	return server.Serve(listener)
}
