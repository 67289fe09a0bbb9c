package bolt

import (
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"
)

const (
	// compactAbove is the size in bytes above which Open compacts a half-empty file.
	compactAbove = 1 << 20
	// compactTx is the maximum size of a transaction of a compaction in bytes, which limits its memory.
	compactTx = 256 << 10
)

// compactIfWorthwhile compacts a file that is mostly free space. If that fails, the old file stays.
func (p *Place) compactIfWorthwhile(s *stateFile, report *Report) (*stateFile, error) {
	if s.size <= compactAbove || s.free*2 <= s.size {
		return s, nil
	}
	next, err := p.compact(s)
	if next != nil && err != nil {
		return nil, errors.Join(fmt.Errorf("compact %s: %w", p.path, err), next.close(), s.close())
	}
	if err != nil {
		report.Problems = append(report.Problems, fmt.Errorf("compact %s: %w", p.path, err))
		return s, nil
	}
	report.Compacted = s.size - next.size
	return next, s.close()
}

// compact replaces the file by a copy of s without free space and returns the copy, open and locked; s also stays open.
// If it returns an error without a copy, the file is unchanged. If it returns an error with a copy, the old file may be
// back after a power failure.
func (p *Place) compact(s *stateFile) (*stateFile, error) {
	tmp := p.tempPath()
	if err := removeIfThere(tmp); err != nil {
		return nil, err
	}
	if err := p.rewrite(tmp, s.db); err != nil {
		return nil, errors.Join(err, removeIfThere(tmp))
	}
	next, err := p.openState(tmp, false)
	if err != nil {
		return nil, errors.Join(err, removeIfThere(tmp))
	}
	next.torn = s.torn
	want := s.header
	want.WAL = next.header.WAL
	if next.header != want {
		err = errors.New("the copy differs")
	} else {
		err = os.Rename(tmp, p.path)
	}
	if err != nil {
		return nil, errors.Join(err, next.close(), removeIfThere(tmp))
	}
	return next, syncDir(p.dir())
}

// rewrite copies the content of src to a new file and syncs it. The numbers of its transactions restart, so the log no
// longer belongs to it.
func (p *Place) rewrite(path string, src *bbolt.DB) error {
	o := p.options()
	o.NoSync = true
	dst, err := bbolt.Open(path, 0o600, o)
	if err != nil {
		return err
	}
	err = RecoverFault(func() error { return bbolt.Compact(dst, src, compactTx) })
	if err == nil {
		err = dst.Update(SeparateLog)
	}
	if err == nil {
		err = dst.Sync()
	}
	return errors.Join(err, dst.Close())
}

// Compact rewrites the file without free space, and returns its size before and after. No process may have it open.
func (p *Place) Compact() (before, after int64, err error) {
	s, unlock, err := p.openOffline()
	if err != nil {
		return 0, 0, err
	}
	defer unlock.Close()
	next, err := p.compact(s)
	if next == nil {
		return s.size, s.size, errors.Join(fmt.Errorf("compact %s: %w", p.path, err), s.close())
	}
	return s.size, next.size, errors.Join(err, next.close(), s.close())
}
