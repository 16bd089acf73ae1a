package main

import (
	"context"
	"fmt"
	"os"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// kubelet is what kubelet asks about the driver when it finds the socket in its folder of plugins.
type kubelet struct {
	registration.UnimplementedRegistrationServer

	name   string
	socket string
}

func (k *kubelet) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              k.name,
		Endpoint:          k.socket,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (k *kubelet) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !status.GetPluginRegistered() {
		fmt.Fprintln(os.Stderr, "mount-driver: kubelet refuses the driver:", status.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}
