package cri_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkPod measures each step of a pod's life and reports the median in
// milliseconds. What bridge takes more than host is the pod network's share.
func BenchmarkPod(b *testing.B) {
	n := startNode(b)
	n.importSample()
	b.Run("bridge", func(b *testing.B) { benchmarkPod(b, n, api.NamespaceMode_POD) })
	b.Run("host", func(b *testing.B) { benchmarkPod(b, n, api.NamespaceMode_NODE) })
}

func benchmarkPod(b *testing.B, n *node, network api.NamespaceMode) {
	ctx := b.Context()
	steps := map[string][]float64{}
	step := func(name string, do func() error) {
		start := time.Now()
		if err := do(); err != nil {
			b.Fatal(name, ": ", err)
		}
		steps[name] = append(steps[name], float64(time.Since(start).Microseconds())/1000)
	}
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		config := n.sandboxConfig(fmt.Sprint(network, i))
		config.Hostname = ""
		config.Linux.SecurityContext = &api.LinuxSandboxSecurityContext{NamespaceOptions: &api.NamespaceOption{Network: network}}
		var sandbox, container string
		step("RunPodSandbox-ms", func() (err error) {
			sandbox, err = n.runtime.RunPodSandbox(ctx, config, "")
			return err
		})
		step("Create+Start-ms", func() (err error) {
			if container, err = n.runtime.CreateContainer(ctx, sandbox, webConfig("sleep", "1h"), config); err != nil {
				return err
			}
			return n.runtime.StartContainer(ctx, container)
		})
		step("Stop-ms", func() error { return n.runtime.StopContainer(ctx, container, 0) })
		step("Remove-ms", func() error {
			if err := n.runtime.RemoveContainer(ctx, container); err != nil {
				return err
			}
			if err := n.runtime.StopPodSandbox(ctx, sandbox); err != nil {
				return err
			}
			return n.runtime.RemovePodSandbox(ctx, sandbox)
		})
		steps["life-ms"] = append(steps["life-ms"], float64(time.Since(began).Microseconds())/1000)
	}
	for name, values := range steps {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], name)
	}
}
