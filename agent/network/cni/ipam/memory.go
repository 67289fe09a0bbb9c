package ipam

import (
	"encoding/binary"
	"net/netip"
	"os"
	"sync"
)

// Memory is what a process knows of the files of one Pool, so that a call need not read those of all other pods. It is valid as long
// as no other process has changed them: the file of the lock counts all changes.
type Memory struct {
	mu     sync.Mutex // held under the lock of all addresses, which excludes other processes, too
	dir    string
	change uint64 // the number of changes when held was valid
	held   map[netip.Addr]Holder
}

// change runs f under the lock with the holders of all addresses. It may write files, and changes held accordingly.
func (p Pool) change(f func(held map[netip.Addr]Holder) error) error { return p.changeCounted(true, f) }

// free is change for an f that only removes files, which other processes notice also where the disk is too full to count it.
func (p Pool) free(f func(held map[netip.Addr]Holder) error) error { return p.changeCounted(false, f) }

// changeCounted fails before f if the change cannot be counted and must be.
func (p Pool) changeCounted(must bool, f func(held map[netip.Addr]Holder) error) error {
	return p.lock(func(lock *os.File) error {
		m := p.Memory
		if m == nil {
			m = &Memory{}
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		held, change, err := p.recall(m, lock)
		if err != nil {
			return err
		}
		m.held = nil // until f has succeeded
		uncounted := writeChange(lock, change+1)
		if uncounted != nil && must {
			return uncounted
		}
		if err := f(held); err != nil || uncounted != nil {
			return err
		}
		for _, h := range held {
			if h.unread { // perhaps not the next time
				return nil
			}
		}
		m.dir, m.change, m.held = p.Dir, change+1, held
		return nil
	})
}

// recall returns the holders and the number of changes.
func (p Pool) recall(m *Memory, lock *os.File) (map[netip.Addr]Holder, uint64, error) {
	change, ok := readChange(lock)
	if ok && m.held != nil && m.dir == p.Dir && m.change == change {
		names, err := p.names()
		if err != nil {
			return nil, 0, err
		}
		// A file that was removed by hand frees its address.
		if len(names) == len(m.held) && !lacks(m.held, names) {
			return m.held, change, nil
		}
	}
	held, err := p.Holders()
	return held, change, err
}

func lacks(held map[netip.Addr]Holder, names []netip.Addr) bool {
	for _, ip := range names {
		if _, ok := held[ip]; !ok {
			return true
		}
	}
	return false
}

// names returns the addresses that have files.
func (p Pool) names() ([]netip.Addr, error) {
	dir, err := os.Open(p.Folder())
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	out := make([]netip.Addr, 0, len(names))
	for _, name := range names {
		if ip, err := netip.ParseAddr(name); err == nil {
			out = append(out, ip)
		}
	}
	return out, nil
}

// readChange is false for a file of an earlier version, which did not count.
func readChange(lock *os.File) (uint64, bool) {
	var number [8]byte
	_, err := lock.ReadAt(number[:], 0)
	return binary.NativeEndian.Uint64(number[:]), err == nil
}

func writeChange(lock *os.File, change uint64) error {
	_, err := lock.WriteAt(binary.NativeEndian.AppendUint64(nil, change), 0)
	return err
}
