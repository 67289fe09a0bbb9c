// Command csidriver is a CSI driver for tests: each volume is a tmpfs with the file "handle". Like a driver in a pod,
// it expects the data folder at /var/lib/kubelet. It prints the calls of the node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	reg "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"monopod/agent/host"
	"monopod/testdata/deviceplugin/sockets"
)

const name = "csi.example.com"

func main() {
	data := flag.String("data-dir", "", "the node's data folder")
	pid := flag.String("pid", "", "a file for the id of the process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := errors.Join(os.WriteFile(*pid, []byte(strconv.Itoa(os.Getpid())), 0o600), (&driver{data: *data}).serve(ctx))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "csidriver:", err)
		os.Exit(1)
	}
}

// driver serves registration and the CSI node service on one socket.
type driver struct {
	data string
	csi.UnimplementedNodeServer
	reg.UnimplementedRegistrationServer
}

const folder, socket = "plugins_registry", name + "-reg.sock"

func (d *driver) serve(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(d.data, folder), 0o750); err != nil { // the node may not have started yet
		return err
	}
	l, err := sockets.Replace(filepath.Join(d.data, folder, socket), nil)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	reg.RegisterRegistrationServer(s, d)
	csi.RegisterNodeServer(s, d)
	defer context.AfterFunc(ctx, s.Stop)()
	err = s.Serve(l)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (d *driver) GetInfo(context.Context, *reg.InfoRequest) (*reg.PluginInfo, error) {
	return &reg.PluginInfo{Type: reg.CSIPlugin, Name: name, SupportedVersions: []string{"1.0.0"},
		Endpoint: filepath.Join(host.KubeletDir, folder, socket)}, nil
}

func (d *driver) NotifyRegistrationStatus(_ context.Context,
	s *reg.RegistrationStatus) (*reg.RegistrationStatusResponse, error) {
	fmt.Println("registered", s.PluginRegistered, s.Error)
	return &reg.RegistrationStatusResponse{}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "box"}, nil
}

func (d *driver) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	stage := &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}
	return &csi.NodeGetCapabilitiesResponse{
		Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{Rpc: stage}}}}, nil
}

func (d *driver) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse,
	error) {
	return &csi.NodeStageVolumeResponse{}, d.mount("stage", r.VolumeId, "", r.StagingTargetPath)
}

func (d *driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse,
	error) {
	return &csi.NodeUnstageVolumeResponse{}, d.unmount("unstage", r.VolumeId, r.StagingTargetPath)
}

func (d *driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse,
	error) {
	return &csi.NodePublishVolumeResponse{}, d.mount("publish", r.VolumeId, r.StagingTargetPath, r.TargetPath)
}

func (d *driver) NodeUnpublishVolume(_ context.Context,
	r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, d.unmount("unpublish", r.VolumeId, r.TargetPath)
}

// mount mounts a new tmpfs, or source if it is not empty, at target, unless target is mounted.
func (d *driver) mount(call, handle, source, target string) error {
	fmt.Println(call, handle)
	target = host.KubeletPath(target, d.data)
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(target, "handle")); err == nil {
		return nil
	}
	if source != "" {
		return unix.Mount(host.KubeletPath(source, d.data), target, "", unix.MS_BIND, "")
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", 0, ""); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(target, "handle"), []byte(handle), 0o644)
}

func (d *driver) unmount(call, handle, target string) error {
	fmt.Println(call, handle)
	err := unix.Unmount(host.KubeletPath(target, d.data), 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // not mounted
		return nil
	}
	return err
}
