package cri_test

import (
	"math/rand/v2"
	"testing"

	"monopod/agent/runtime/runtimetest/registrytest"
	"monopod/testdata/harness"
)

// Downloads reports the progress of layers during a pull.
func TestDownloads(t *testing.T) {
	n := startNode(t)
	registry := registrytest.New()
	t.Cleanup(registry.Close)
	program, random := make([]byte, 4<<20), rand.New(rand.NewPCG(1, 2))
	for i := range program { // random bytes do not compress
		program[i] = byte(random.Uint32())
	}
	name, _, err := registry.Push("big:1", program)
	if err != nil {
		t.Fatal(err)
	}
	resume := registry.Pause(3 << 20)
	defer resume()
	pulled := make(chan error, 1)
	go func() {
		_, err := n.runtime.PullImage(t.Context(), name, nil, nil)
		pulled <- err
	}()
	arrived := harness.Eventually(harness.Enough, func() bool {
		all, err := n.runtime.Downloads(t.Context())
		if err != nil {
			t.Error(err)
			return true
		}
		for _, part := range all {
			if part.Total > 4<<20 && part.Done > 0 && part.Done <= part.Total {
				return true
			}
		}
		return false
	})
	if !arrived {
		t.Error("Downloads never listed the layer")
	}
	resume()
	if err := <-pulled; err != nil {
		t.Fatal(err)
	}
	if all, err := n.runtime.Downloads(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("downloads after the pull: %v, error %v", all, err)
	}
}
