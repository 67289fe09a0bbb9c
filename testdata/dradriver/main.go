// Command dradriver is a DRA driver with devices that do nothing, for tests and experiments. It publishes them in a
// ResourceSlice and prints the calls of the node. It registers again after a restart of the node. The devices are
// healthy until the driver receives SIGUSR1.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"monopod/testdata/dradriver/driver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dradriver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	data := flag.String("data-dir", "", "the node's data folder")
	node := flag.String("node", "", "the name of the node")
	name := flag.String("name", "gpu.example.com", "the name of the driver")
	count := flag.Int("devices", 2, "number of devices: gpu-1, gpu-2, …")
	pid := flag.String("pid", "", "a file for the id of the process")
	old := flag.Bool("old", false, "serve v1beta1 only")
	flag.Parse()
	if *pid != "" {
		if err := os.WriteFile(*pid, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			return err
		}
	}
	api := newAPI(filepath.Join(*data, "monopod.sock"))
	if err := api.publish(ctx, slice(*name, *node, *count)); err != nil {
		return err
	}
	d := driver.New(driver.Config{
		Health: reports(ctx, *node, *count),
		Dir:    filepath.Join(*data, "plugins_registry"), Name: *name, CDI: filepath.Join(*data, "cdi"), Old: *old,
		Devices: func(ctx context.Context, namespace, claim string) (string, []driver.Device, error) {
			return api.devices(ctx, *name, namespace, claim)
		},
		Refuse: func(call, claim string) error {
			fmt.Println(call, claim)
			return nil
		},
	})
	return d.Serve(ctx)
}

// reports sends every second that all devices are healthy, after SIGUSR1 that they are unhealthy.
func reports(ctx context.Context, pool string, count int) <-chan []*health.DeviceHealth {
	out, sick := make(chan []*health.DeviceHealth), make(chan os.Signal, 1)
	signal.Notify(sick, syscall.SIGUSR1)
	go func() {
		is, why := health.HealthStatus_HEALTHY, ""
		for ctx.Err() == nil {
			var all []*health.DeviceHealth
			for i := range count {
				all = append(all, &health.DeviceHealth{Health: is, Message: why, HealthCheckTimeoutSeconds: 3600,
					Device: &health.DeviceIdentifier{PoolName: pool, DeviceName: "gpu-" + strconv.Itoa(i+1)}})
			}
			pause := time.After(time.Second)
			select {
			case out <- all:
			case <-ctx.Done():
			}
			select {
			case <-sick:
				is, why = health.HealthStatus_UNHEALTHY, "too hot"
			case <-pause:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// slice returns a ResourceSlice with the devices gpu-1, gpu-2 and so on, whose attribute "index" differs.
func slice(driver, node string, count int) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: resourcev1.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: node + "-" + driver},
		Spec: resourcev1.ResourceSliceSpec{Driver: driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node,
			Generation: 1, ResourceSliceCount: 1}},
	}
	for i := range count {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
			Name:       "gpu-" + strconv.Itoa(i+1),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"index": {IntValue: new(int64(i + 1))}},
		})
	}
	return s
}

// api is the node's API on its Unix socket.
type api struct{ http.Client }

func newAPI(socket string) *api {
	return &api{http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}}
}

const group = "http://node/apis/resource.k8s.io/v1/"

// publish creates the slice, unless it exists.
func (a *api) publish(ctx context.Context, s *resourcev1.ResourceSlice) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	err = a.call(ctx, http.MethodPost, "resourceslices", body, nil)
	if errors.Is(err, statusError(http.StatusConflict)) {
		return nil
	}
	return err
}

// devices returns the devices of a driver that are allocated to a claim.
func (a *api) devices(ctx context.Context, name, namespace, claim string) (pool string, out []driver.Device,
	err error) {
	var c resourcev1.ResourceClaim
	if err := a.call(ctx, http.MethodGet, "namespaces/"+namespace+"/resourceclaims/"+claim, nil, &c); err != nil {
		return "", nil, err
	}
	if c.Status.Allocation == nil {
		return "", nil, fmt.Errorf("claim %s has no devices", claim)
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == name {
			pool, out = r.Pool, append(out, driver.Device{Request: r.Request, Name: r.Device})
		}
	}
	return pool, out, nil
}

type statusError int

func (s statusError) Error() string { return http.StatusText(int(s)) }

func (a *api) call(ctx context.Context, method, path string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, group+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= http.StatusBadRequest:
		return statusError(resp.StatusCode)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(text, answer)
}
