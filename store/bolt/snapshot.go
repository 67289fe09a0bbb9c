package bolt

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/bbolt"
)

// Snapshot is a copy of the state file. A file next to it contains its checksum in the format of `sha256sum -c`.
type Snapshot struct {
	Name     string    `json:"name"`
	Time     time.Time `json:"time"`
	Revision int64     `json:"revision"` // of the newest durable write
	Size     int64     `json:"size"`     // bytes
}

const (
	snapshotTime = "20060102T150405Z"
	snapshotExt  = ".db"
	checksumExt  = ".sha256"
)

func (p *Place) snapshotDir() string { return filepath.Join(p.dir(), "snapshots") }

// file returns the path of a snapshot. name is a name in the folder of snapshots, or a path.
func (p *Place) file(name string) string {
	if strings.ContainsRune(name, filepath.Separator) {
		return name
	}
	return filepath.Join(p.snapshotDir(), name)
}

// parseSnapshot parses a name of the form <time>-<revision>.db.
func parseSnapshot(name string) (Snapshot, bool) {
	base, ok := strings.CutSuffix(name, snapshotExt)
	at, rev, split := strings.Cut(base, "-")
	t, timeErr := time.Parse(snapshotTime, at)
	n, revErr := strconv.ParseInt(rev, 10, 64)
	return Snapshot{Name: name, Time: t, Revision: n}, ok && split && timeErr == nil && revErr == nil
}

// List returns the snapshots, newest first. It sorts by revision because, unlike the time, it never decreases.
func (p *Place) List() ([]Snapshot, error) {
	files, err := os.ReadDir(p.snapshotDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []Snapshot
	for _, f := range files {
		s, ok := parseSnapshot(f.Name())
		if !ok {
			continue
		}
		if info, err := f.Info(); err == nil {
			s.Size = info.Size()
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Snapshot) int {
		return cmp.Or(cmp.Compare(b.Revision, a.Revision), b.Time.Compare(a.Time))
	})
	return all, nil
}

// Verify checks the whole snapshot: its checksum, every page and every object.
func (p *Place) Verify(name string) error {
	path := p.file(name)
	if err := verifySum(path); err != nil {
		return fmt.Errorf("snapshot %s: %w", name, err)
	}
	s, err := p.openState(path, true)
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", name, err)
	}
	return s.close()
}

func verifySum(path string) error {
	want, err := os.ReadFile(path + checksumExt)
	if err != nil {
		return fmt.Errorf("its checksum: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if !bytes.HasPrefix(want, []byte(hex.EncodeToString(sum.Sum(nil)))) {
		return fmt.Errorf("%w: its checksum does not match", ErrDamaged)
	}
	return nil
}

// Save takes a snapshot of the open file. Writes continue meanwhile. It then removes
// the oldest snapshots beyond the number to keep.
func (d *DB) Save() (Snapshot, error) {
	d.saveMu.Lock()
	defer d.saveMu.Unlock()
	return d.place.save(d.view)
}

// view calls do with a transaction that reads all earlier commits.
func (d *DB) view(do func(*bbolt.Tx) error) error {
	var tx *bbolt.Tx
	err := d.Pause(context.Background(), func() (err error) { // as long as a commit
		if err = d.log.Check(); err == nil {
			err = d.log.checkpoint(false)
		}
		if err == nil {
			tx, err = d.log.db().Begin(false)
		}
		if err == nil {
			d.log.copied = true
		}
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // the transaction is read-only
	return do(tx)
}

// Save takes a snapshot of the file. No process may have it open.
func (p *Place) Save() (Snapshot, error) {
	s, unlock, err := p.openOffline()
	if err != nil {
		return Snapshot{}, err
	}
	defer unlock.Close()
	made, err := p.save(s.db.View)
	return made, errors.Join(err, s.close())
}

// openOffline opens the file without migrating it. It is locked until both unlock and the file are closed.
func (p *Place) openOffline() (s *stateFile, unlock io.Closer, err error) {
	if unlock, err = LockDir(p.dir()); err != nil {
		return nil, nil, err
	}
	if s, err = p.openState(p.path, false); err != nil {
		return nil, nil, errors.Join(err, unlock.Close())
	}
	return s, unlock, nil
}

// view calls a function with a transaction of a file that is complete without its log.
type view func(func(*bbolt.Tx) error) error

func (p *Place) save(view view) (Snapshot, error) {
	s, err := p.copySnapshot(view)
	if err != nil {
		return Snapshot{}, fmt.Errorf("save a snapshot: %w", err)
	}
	return s, p.prune()
}

// copySnapshot takes a snapshot and verifies it before it gets its name.
func (p *Place) copySnapshot(view view) (s Snapshot, err error) {
	if err := os.MkdirAll(p.snapshotDir(), 0o700); err != nil {
		return s, err
	}
	tmp := p.file(".new")
	s, err = p.writeSnapshot(tmp, view)
	if err == nil {
		err = p.nameSnapshot(tmp, s)
	}
	if err != nil {
		return s, errors.Join(err, removeIfThere(tmp), removeIfThere(tmp+checksumExt))
	}
	return s, nil
}

// nameSnapshot verifies the copy. The checksum is renamed first, so that a snapshot
// always has one.
func (p *Place) nameSnapshot(tmp string, s Snapshot) error {
	if err := p.Verify(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp+checksumExt, p.file(s.Name)+checksumExt); err != nil {
		return err
	}
	if err := renameSynced(tmp, p.file(s.Name)); err != nil {
		return err
	}
	return syncDir(p.dir())
}

// writeSnapshot writes the content of the file in one transaction, and its checksum, and syncs both.
func (p *Place) writeSnapshot(path string, view view) (s Snapshot, err error) {
	sum := sha256.New()
	err = writeFile(path, func(w io.Writer) error {
		return RecoverFault(func() error {
			return view(func(tx *bbolt.Tx) error {
				h, err := ReadHeader(tx)
				if err != nil {
					return err
				}
				at := p.cfg.Clock.Now().UTC().Truncate(time.Second)
				s = Snapshot{Name: fmt.Sprintf("%s-%d%s", at.Format(snapshotTime), h.Revision, snapshotExt), Time: at,
					Revision: h.Revision}
				s.Size, err = tx.WriteTo(io.MultiWriter(w, sum))
				return err
			})
		})
	})
	if err != nil {
		return s, err
	}
	return s, writeFile(path+checksumExt, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%x  %s\n", sum.Sum(nil), s.Name)
		return err
	})
}

// writeFile creates or replaces a file and syncs it.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// prune removes the oldest snapshots beyond the number to keep, each before its checksum.
func (p *Place) prune() error {
	all, err := p.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range all[min(p.cfg.Keep, len(all)):] {
		errs = append(errs, removeIfThere(p.file(s.Name)), removeIfThere(p.file(s.Name)+checksumExt))
	}
	return errors.Join(errs...)
}

// firstSnapshot is the time after Open when KeepSnapshots first checks whether a snapshot is due, so that a short-lived
// DB takes none.
const firstSnapshot = 5 * time.Minute

// KeepSnapshots takes a snapshot whenever the newest one is older than every and there were durable writes since, until
// ctx ends. It calls failed with each error.
func (d *DB) KeepSnapshots(ctx context.Context, every time.Duration, failed func(error)) {
	wait := min(firstSnapshot, every)
	for {
		timer := d.place.cfg.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		var err error
		if wait, err = d.saveIfDue(every); err != nil {
			failed(err)
		}
	}
}

// saveIfDue takes a snapshot if the newest one is too old and does not have the current revision. It returns the time
// until the next check.
func (d *DB) saveIfDue(every time.Duration) (wait time.Duration, err error) {
	all, err := d.place.List()
	if err != nil {
		return every, err
	}
	if len(all) > 0 {
		age := d.place.cfg.Clock.Since(all[0].Time)
		if age >= 0 && age < every {
			return every - age, nil
		}
		same := false
		err = RecoverFault(func() error {
			return d.log.db().View(func(tx *bbolt.Tx) error {
				h, err := ReadHeader(tx)
				same = h.Revision == all[0].Revision && !h.WAL.Open
				return err
			})
		})
		if same || err != nil {
			return every, err
		}
	}
	_, err = d.Save()
	return every, err
}
