// Package userns assigns ranges of the host's user IDs to pods, so that root in a pod
// is unprivileged outside.
//
// A range is recorded in the pod's folder and is free again when that folder is removed. There is no other state.
package userns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/host/checkpoint"
)

// Length is the number of user IDs of a pod (upstream: 65536).
const Length = 65536

// Ranges assigns blocks of user IDs, from Length on. It is safe for concurrent use.
type Ranges struct {
	dir   string // parent of the pods' folders
	count int    // number of ranges

	mu sync.Mutex // held while a range is chosen and recorded
}

// New returns Ranges for at most count pods with folders below dir.
func New(dir string, count int) *Ranges { return &Ranges{dir: dir, count: count} }

// block is the record in the pod's folder: the host's users and groups First to First+Length−1 are 0 to Length−1 in the
// pod.
type block struct {
	First  uint32 `json:"hostId"`
	Length uint32 `json:"length"`
}

// Shared returns the namespace of a pod without a user namespace.
func Shared() *cri.UserNamespace { return &cri.UserNamespace{Mode: cri.NamespaceMode_NODE} }

// Get returns the namespace of the pod: the recorded one, or else a new one.
func (r *Ranges) Get(pod types.UID) (*cri.UserNamespace, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, found, err := r.read(string(pod))
	if err == nil && !found {
		first, err = r.allocate(string(pod))
	}
	if err != nil {
		return nil, fmt.Errorf("user namespace: %w", err)
	}
	ids := []*cri.IDMapping{{HostId: first, ContainerId: 0, Length: Length}}
	return &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: ids, Gids: ids}, nil
}

func (r *Ranges) file(pod string) checkpoint.File {
	return checkpoint.File(filepath.Join(r.dir, pod, "userns"))
}

// read returns the first user ID of the pod's range.
func (r *Ranges) read(pod string) (first uint32, found bool, err error) {
	var b block
	found, err = r.file(pod).Load(&b)
	if found && err == nil && (b.Length != Length || b.First%Length != 0 || b.First == 0) {
		err = fmt.Errorf("%s: %w: no range of %d users", r.file(pod), checkpoint.ErrDamaged, Length)
	}
	return b.First, found, err
}

// allocate records the first free range for the pod.
func (r *Ranges) allocate(pod string) (uint32, error) {
	used, err := r.used()
	if err != nil {
		return 0, err
	}
	for i := 1; i <= r.count; i++ {
		first := uint32(i * Length)
		if used[first] {
			continue
		}
		if err := os.MkdirAll(filepath.Join(r.dir, pod), 0o755); err != nil {
			return 0, err
		}
		return first, r.file(pod).Save(block{first, Length})
	}
	return 0, errors.New("could not find an empty slot to allocate a user namespace")
}

// used returns the ranges of all pods. It returns an error if a record cannot be read, because two pods must not share
// user IDs.
func (r *Ranges) used() (map[uint32]bool, error) {
	folders, err := os.ReadDir(r.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	used := map[uint32]bool{}
	for _, f := range folders {
		first, found, err := r.read(f.Name())
		if err != nil {
			return nil, err
		}
		if found {
			used[first] = true
		}
	}
	return used, nil
}
