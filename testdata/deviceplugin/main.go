// Command deviceplugin is a device plugin with devices that do nothing, for tests and experiments. It registers again
// after a restart of the node. With -ask it prints the allocated devices instead.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"monopod/testdata/deviceplugin/plugin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var cfg plugin.Config
	flag.StringVar(&cfg.Dir, "dir", "",
		"the folder of the sockets: device-plugins, or plugins_registry, of the data folder")
	flag.StringVar(&cfg.Name, "socket", "testdev.sock", "the name of its socket")
	flag.StringVar(&cfg.Resource, "resource", "example.com/testdev", "the name of the resource")
	flag.StringVar(&cfg.Mount, "mount", "", "a folder of the machine that is mounted at /testdev in containers")
	flag.StringVar(&cfg.CDI, "cdi", "", "prefix of the names of CDI devices, such as example.com/thing=")
	count := flag.Int("devices", 2, "number of devices: dev-1, dev-2, …")
	sick := flag.String("sick", "", "a file with the ids of unhealthy devices, read periodically")
	pid := flag.String("pid", "", "a file for the id of the process")
	asked := flag.String("ask", "", "the socket of a podresources API: print its response, one container per line")
	flag.Parse()
	if *asked != "" {
		return ask(ctx, *asked)
	}
	if *pid != "" {
		if err := os.WriteFile(*pid, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			return err
		}
	}
	cfg.Watched = filepath.Base(cfg.Dir) == "plugins_registry"
	cfg.Devices = devices(*count, *sick)
	p := plugin.New(cfg)
	go watch(ctx, p, func() []*api.Device { return devices(*count, *sick) })
	for ctx.Err() == nil {
		if err := serve(ctx, p); err != nil {
			fmt.Fprintln(os.Stderr, "deviceplugin:", err)
			time.Sleep(pause)
		}
	}
	return nil
}

// ask prints the name, devices and exclusive CPUs of each container.
func ask(ctx context.Context, path string) error {
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	list, err := podresources.NewPodResourcesListerClient(conn).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return err
	}
	for _, pod := range list.PodResources {
		for _, c := range pod.Containers {
			fmt.Printf("%s/%s/%s", pod.Namespace, pod.Name, c.Name)
			for _, d := range c.Devices {
				fmt.Printf(" %s=%s", d.ResourceName, strings.Join(d.DeviceIds, ","))
			}
			if len(c.CpuIds) > 0 {
				fmt.Printf(" cpus=%v", c.CpuIds)
			}
			fmt.Println()
		}
	}
	return nil
}

// pause is the polling interval for files.
const pause = 50 * time.Millisecond

// serve serves until the node restarts and removes the socket.
func serve(ctx context.Context, p *plugin.Plugin) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		for there := false; ctx.Err() == nil; time.Sleep(pause) {
			_, err := os.Lstat(p.Socket())
			if there && err != nil {
				return
			}
			there = there || err == nil
		}
	}()
	return p.Serve(ctx)
}

func devices(count int, sick string) []*api.Device {
	text, _ := os.ReadFile(sick)
	ill := strings.Fields(string(text))
	var out []*api.Device
	for i := range count {
		d := plugin.Devices("dev-" + strconv.Itoa(i+1))[0]
		if slices.Contains(ill, d.ID) {
			d.Health = api.Unhealthy
		}
		out = append(out, d)
	}
	return out
}

// watch updates the plugin's devices when their health changes.
func watch(ctx context.Context, p *plugin.Plugin, now func() []*api.Device) {
	healths := func(list []*api.Device) (out []string) {
		for _, d := range list {
			out = append(out, d.Health)
		}
		return out
	}
	for last := now(); ctx.Err() == nil; time.Sleep(pause) {
		if next := now(); !slices.Equal(healths(next), healths(last)) {
			p.Set(next)
			last = next
		}
	}
}
