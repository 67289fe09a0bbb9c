package bolt

import (
	"errors"
	"fmt"
	"io"
	"os"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"monopod/store"
)

// unknownBlock is added to the revision if it is unknown how many writes the lost file had after the snapshot. It is
// enough for ten thousand writes a second for three years.
const unknownBlock = 1 << 40

// recover replaces a damaged file by the newest valid snapshot, and opens it. Without a valid snapshot it changes
// nothing.
func (p *Place) recover(damage error, report *Report) (*stateFile, []*store.Entry, error) {
	all, err := p.List()
	if err != nil {
		return nil, nil, errors.Join(damage, err)
	}
	tried := []error{damage}
	for _, snapshot := range all {
		if err := p.Verify(snapshot.Name); err != nil {
			tried = append(tried, err)
			continue
		}
		if report.SetAside, err = p.replace(snapshot.Name, all[0].Revision+unknownBlock, "damaged"); err != nil {
			return nil, nil, errors.Join(damage, err)
		}
		p.dropLog("damaged", report)
		report.Damage, report.Restored = damage, snapshot
		return p.openRestored(report)
	}
	return nil, nil, fmt.Errorf("%w\nthere is no good snapshot in %s to replace it; nothing was changed. "+
		"Put a good copy at %s, or move the file and the snapshots away to start with an empty state",
		errors.Join(tried...), p.snapshotDir(), p.path)
}

// openRestored opens the file after a snapshot has replaced it. It takes a new snapshot at once, which contains the
// raised revision, in case this file is also damaged.
func (p *Place) openRestored(report *Report) (*stateFile, []*store.Entry, error) {
	s, entries, err := p.openMigrated(p.path, report)
	if err != nil {
		return nil, nil, err
	}
	if _, err := p.copySnapshot(s.db.View); err != nil {
		report.Problems = append(report.Problems, err)
	}
	return s, entries, nil
}

// replace replaces the file by a copy of the snapshot. The old file is kept under a name that contains why; replace
// returns its path, or "" if there was no file. Revisions in the copy continue above mark. After a power failure, one
// of the two files is in place.
func (p *Place) replace(name string, mark int64, why string) (setAside string, err error) {
	tmp := p.tempPath()
	err = copyFile(tmp, p.file(name))
	if err == nil {
		err = p.raiseRevision(tmp, mark)
	}
	if err == nil {
		setAside, err = p.setAside(p.path, why)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("restore %s: %w", name, err), removeIfThere(tmp))
	}
	return setAside, renameSynced(tmp, p.path)
}

func copyFile(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	return writeFile(to, func(w io.Writer) error {
		_, err := io.Copy(w, src)
		return err
	})
}

// raiseRevision raises the revision of the file at path above mark and its own, so that every revision of the replaced
// file, which clients may have, is older.
func (p *Place) raiseRevision(path string, mark int64) error {
	var report Report
	s, _, err := p.openMigrated(path, &report)
	if err != nil {
		return err
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		h, err := ReadHeader(tx)
		if err != nil {
			return err
		}
		h.Reserved = max(h.Reserved, mark) + 1
		h.Revision = h.Reserved
		h.WAL = NewWAL(0) // the log belongs to another file
		return h.Put(tx.Bucket(MetaBucket))
	})
	return errors.Join(err, s.close())
}

// setAside links the file at path to a second name. If the file system does not support links, it renames the file;
// Open handles a missing file.
func (p *Place) setAside(path, why string) (string, error) {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	base := fmt.Sprintf("%s.%s-%s", path, why, p.cfg.Clock.Now().UTC().Format(snapshotTime))
	name := base
	for i := 2; ; i++ {
		err := os.Link(path, name)
		if errors.Is(err, os.ErrExist) {
			name = fmt.Sprintf("%s-%d", base, i)
			continue
		}
		if err != nil {
			err = os.Rename(path, name)
		}
		return name, errors.Join(err, syncDir(p.dir()))
	}
}

// Restore replaces the file by a snapshot. name is a name from List, or a path. No process may have the file open. The
// old file is kept. Revisions continue above those of both.
func (p *Place) Restore(name string) (Report, error) {
	unlock, err := LockDir(p.dir())
	if err != nil {
		return Report{}, err
	}
	defer unlock.Close()
	if err := p.Verify(name); err != nil {
		return Report{}, err
	}
	mark, current, err := p.highestRevision()
	if err != nil {
		return Report{}, err
	}
	report := Report{Restored: Snapshot{Name: name}}
	report.SetAside, err = p.replace(name, mark, "replaced")
	if current != nil {
		err = errors.Join(err, current.Close())
	} else {
		p.dropLog("replaced", &report)
	}
	if err != nil {
		return report, err
	}
	s, _, err := p.openRestored(&report)
	if err != nil {
		return report, err
	}
	return report, s.close()
}

// highestRevision returns a revision that is at least as high as every revision in the file. It also returns the open
// file, so that no other process opens it meanwhile, or nil if there is no readable file.
func (p *Place) highestRevision() (int64, io.Closer, error) {
	current, err := p.openState(p.path, false)
	switch {
	case errors.Is(err, ErrLocked):
		return 0, nil, err
	case err == nil:
		return current.firstRevision(), current.db, nil
	}
	all, err := p.List()
	if err != nil || len(all) == 0 {
		return unknownBlock, nil, err
	}
	return all[0].Revision + unknownBlock, nil, nil
}

// unreadable reports whether bbolt returned the error because of the content of the file.
func unreadable(err error) bool {
	return errors.Is(err, bolterrors.ErrInvalid) || errors.Is(err, bolterrors.ErrChecksum) ||
		errors.Is(err, bolterrors.ErrVersionMismatch)
}
