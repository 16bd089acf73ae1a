package main

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"
)

// driver holds no state of its own: what is mounted is what is there.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer

	name    string
	node    string
	mounter mount.Interface
	// turn lets one call at a time look at mounts and change them.
	turn sync.Mutex
}

func (d *driver) GetPluginInfo(
	context.Context, *csi.GetPluginInfoRequest,
) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "1"}, nil
}

// GetPluginCapabilities names none: there is no Controller service.
func (d *driver) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

func (d *driver) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, kind := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		rpc := &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: kind}}
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{Type: rpc})
	}
	return answer, nil
}

func (d *driver) NodeStageVolume(
	_ context.Context, request *csi.NodeStageVolumeRequest,
) (*csi.NodeStageVolumeResponse, error) {
	path, capability := request.GetStagingTargetPath(), request.GetVolumeCapability()
	if err := d.mount("tmpfs", path, "tmpfs", capability, "size=4m"); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func (d *driver) NodeUnstageVolume(
	_ context.Context, request *csi.NodeUnstageVolumeRequest,
) (*csi.NodeUnstageVolumeResponse, error) {
	if err := d.unmount(request.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (d *driver) NodePublishVolume(
	_ context.Context, request *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	options := []string{"bind"}
	if request.GetReadonly() {
		options = append(options, "ro")
	}
	source, path := request.GetStagingTargetPath(), request.GetTargetPath()
	if err := d.mount(source, path, "", request.GetVolumeCapability(), options...); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (d *driver) NodeUnpublishVolume(
	_ context.Context, request *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := d.unmount(request.GetTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// mount mounts at a path unless something is mounted there already.
func (d *driver) mount(source, path, kind string, capability *csi.VolumeCapability, options ...string) error {
	if path == "" || source == "" || capability.GetMount() == nil {
		return status.Error(codes.InvalidArgument, "file systems only, and at a path")
	}
	d.turn.Lock()
	defer d.turn.Unlock()
	mounted, err := d.mounter.IsMountPoint(path)
	if errors.Is(err, os.ErrNotExist) {
		err = os.MkdirAll(path, 0o750)
	}
	if err == nil && !mounted {
		err = d.mounter.Mount(source, path, kind, append(options, capability.GetMount().GetMountFlags()...))
	}
	return internal(err)
}

// unmount takes away what is mounted at a path, and the path itself.
func (d *driver) unmount(path string) error {
	if path == "" {
		return status.Error(codes.InvalidArgument, "there is no path")
	}
	d.turn.Lock()
	defer d.turn.Unlock()
	return internal(mount.CleanupMountPoint(path, d.mounter, true))
}

func internal(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(codes.Internal, err.Error())
}
