// Command mount-driver is a CSI driver that mounts as drivers on Kubernetes' mount library do: a file
// system per volume at the staging path, bound from there to each target, and made read-only at a target
// only after it was bound.
//
// It has only a Node service, and a volume is a tmpfs that lives for as long as it is staged.
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
	"k8s.io/mount-utils"
)

func main() {
	socket := flag.String("socket", "", "path of the socket to serve on")
	name := flag.String("name", "", "name that the driver gives itself")
	node := flag.String("node-id", "", "id of the node, for the driver")
	flag.Parse()
	// Without systemd: it would make the mounts in its own namespace, and on a node of these there is none.
	driver := &driver{name: *name, node: *node, mounter: mount.NewWithoutSystemd("")}
	if err := serve(driver, *socket); err != nil {
		fmt.Fprintln(os.Stderr, "mount-driver:", err)
		os.Exit(1)
	}
}

// serve answers calls until the process is told to end.
func serve(driver *driver, socket string) error {
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
	csi.RegisterIdentityServer(server, driver)
	csi.RegisterNodeServer(server, driver)
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	go func() {
		<-told.Done()
		server.GracefulStop()
	}()
	return server.Serve(listener)
}
