package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The program of a sandbox restricts its own system calls, so that runc need not compile RuntimeDefault's filter, which takes
// 11 ms of CPU. Until it has done so, no container may see it, which could make it do something else (ptrace): neither
// one that shares its PID namespace, nor one in the host's.

// hostPIDs knows the sandboxes whose containers see all processes of the machine. It keeps them apart from the sandboxes
// whose program is still without a filter.
type hostPIDs struct {
	listed once // those of an earlier process

	mu       sync.Mutex // guards what follows
	ids      map[string]struct{}
	entering int           // are being created
	bare     int           // sandboxes without runc's filter that are being created
	allWear  chan struct{} // closed when bare becomes 0; nil: nobody waits
	failed   uint64        // creations that may have left a sandbox
	seen     uint64        // those of them that happened before the last list
}

// enter is called before a sandbox with the host's PIDs is created. It waits until every program has a filter.
func (h *hostPIDs) enter(ctx context.Context) error {
	h.mu.Lock()
	h.entering++ // from now on, runc restricts all programs
	if h.bare > 0 && h.allWear == nil {
		h.allWear = make(chan struct{})
	}
	wait := h.allWear
	h.mu.Unlock()
	if wait == nil {
		return nil
	}
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		h.mu.Lock()
		defer h.mu.Unlock()
		h.entering--
		return ctx.Err()
	}
}

// entered is called after enter, when the sandbox exists. Without an ID, its creation has failed: the sandboxes are listed
// again, because it may exist all the same.
func (h *hostPIDs) entered(id string) {
	h.mu.Lock()
	h.entering--
	if id != "" {
		h.add(id)
	} else {
		h.failed++
	}
	h.mu.Unlock()
	if id == "" {
		h.listed.again()
	}
}

func (h *hostPIDs) add(id string) {
	if h.ids == nil {
		h.ids = map[string]struct{}{}
	}
	h.ids[id] = struct{}{}
}

// list adds the sandboxes that f returns, unless it has succeeded before.
func (h *hostPIDs) list(f func() ([]string, error)) error {
	return h.listed.do(func() error {
		h.mu.Lock()
		failed := h.failed
		h.mu.Unlock()
		ids, err := f()
		if err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.seen = failed
		for _, id := range ids {
			h.add(id)
		}
		return nil
	})
}

// removed forgets a sandbox, also if it is being listed.
func (h *hostPIDs) removed(id string) {
	h.listed.mu.Lock()
	defer h.listed.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ids, id)
}

// undress reports, after list, whether a sandbox may be created without runc's filter. Then, dressed is called when its
// program has its own.
func (h *hostPIDs) undress() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ids)+h.entering > 0 || h.seen != h.failed {
		return false
	}
	h.bare++
	return true
}

func (h *hostPIDs) dressed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bare--; h.bare == 0 && h.allWear != nil {
		close(h.allWear)
		h.allWear = nil
	}
}

// runPodSandbox creates the sandbox, without RuntimeDefault if its program restricts itself and no container sees it before.
func (r *Runtime) runPodSandbox(ctx context.Context, config *cri.PodSandboxConfig, handler string) (id string, err error) {
	security := config.GetLinux().GetSecurityContext()
	pid := security.GetNamespaceOptions().GetPid()
	if pid == cri.NamespaceMode_NODE {
		if err := r.hostPIDs.enter(ctx); err != nil {
			return "", err
		}
		defer func() { r.hostPIDs.entered(id) }()
	}
	able := r.config.RuncOrCrun && r.config.StateDir != "" && handler == ""
	if !able || pid == cri.NamespaceMode_NODE || pid == cri.NamespaceMode_POD || security.GetSeccomp().GetProfileType() != cri.SecurityProfile_RuntimeDefault ||
		r.hostPIDs.list(func() ([]string, error) { return r.withHostPIDs(ctx) }) != nil || !r.hostPIDs.undress() {
		return r.created(ctx, config, handler)
	}
	defer r.hostPIDs.dressed()
	config = proto.CloneOf(config)
	config.Linux.SecurityContext.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
	if id, err = r.created(ctx, config, handler); err == nil {
		err = r.awaitPause(ctx, id)
	}
	return id, err
}

func (r *Runtime) created(ctx context.Context, config *cri.PodSandboxConfig, handler string) (string, error) {
	resp, err := r.pods.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	return resp.GetPodSandboxId(), err
}

// withHostPIDs returns the sandboxes whose containers see all processes of the machine.
func (r *Runtime) withHostPIDs(ctx context.Context) ([]string, error) {
	list, err := r.pods.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, s := range list.Items {
		resp, err := r.pods.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: s.Id})
		if present(err) != nil {
			return nil, err
		}
		if resp.GetStatus().GetLinux().GetNamespaces().GetOptions().GetPid() == cri.NamespaceMode_NODE {
			ids = append(ids, s.Id)
		}
	}
	return ids, nil
}

// awaitPause returns when the program of a sandbox has its filter or has ended. It usually has one before containerd answers.
func (r *Runtime) awaitPause(ctx context.Context, id string) error {
	pid, err := os.ReadFile(filepath.Join(r.config.StateDir, "io.containerd.runtime.v2.task", Namespace, id, "init.pid"))
	if os.IsNotExist(err) { // it has been removed
		return nil
	}
	for wait := time.Millisecond; err == nil; wait = min(2*wait, lag) {
		status, gone := os.ReadFile(filepath.Join("/proc", strings.TrimSpace(string(pid)), "status"))
		if gone != nil || waits(string(status)) {
			return nil
		}
		err = sleep(ctx, wait)
	}
	return fmt.Errorf("sandbox %s: its program has not restricted its system calls: %w", id, err)
}

// waits reports whether the process with this status is our program and waits for signals, which it does after it has
// restricted itself. The number of filters would not tell: containerd may run under one.
func waits(status string) bool {
	return strings.HasPrefix(status, "Name:\tpause\n") && (strings.Contains(status, "\nState:\tS") || strings.Contains(status, "\nState:\tZ"))
}
