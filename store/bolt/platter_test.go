package bolt_test

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Kinds of entries in the journal. Each is four 64-bit numbers: kind, node, at and the number of bytes that follow.
const (
	journalWrite    = iota // bytes into the file, at
	journalTruncate        // the file to the size at
	journalSync            // the file, or the folder
	journalCreate          // a name in the folder for the file at
	journalMkdir           // a name in the folder for the folder at
	journalUnlink          // removes a name from the folder
	journalRename          // two names in the folder: the file of the first, at, gets the second name
)

// step is one operation of a disk.
type step struct {
	kind, node uint64
	at         int64
	data       []byte
	end        int64 // offset of the next entry in the journal
}

// steps parses the journal.
func (d *disk) steps(t *testing.T) (steps []step) {
	t.Helper()
	all := read(t, d.journal)
	for data := all; len(data) > 0; {
		n := native.Uint64(data[24:])
		s := step{kind: native.Uint64(data), node: native.Uint64(data[8:]), at: int64(native.Uint64(data[16:])),
			data: data[32 : 32+n]}
		data = data[32+n:]
		s.end = int64(len(all) - len(data))
		steps = append(steps, s)
	}
	return steps
}

// sector is what a disk writes atomically.
const sector = 512

// platter is the content that a disk can have after a power failure: of each file everything up to its last fsync, and
// any of the sectors written since then; of each folder the entries at its last fsync, and any of the changes since
// then.
type platter struct {
	files   map[uint64]*platterFile
	folders map[uint64]*platterFolder
}

type platterFile struct {
	synced  []byte
	written []step
}

type platterFolder struct {
	synced  map[string]uint64
	changes []step
}

func newPlatter() *platter {
	return &platter{files: map[uint64]*platterFile{},
		folders: map[uint64]*platterFolder{rootNode: {synced: map[string]uint64{}}}}
}

func (p *platter) take(s step) {
	switch s.kind {
	case journalWrite, journalTruncate:
		f := p.files[s.node]
		f.written = append(f.written, s)
		return
	case journalSync:
		p.sync(s.node)
		return
	case journalMkdir:
		p.folders[uint64(s.at)] = &platterFolder{synced: map[string]uint64{}}
	case journalCreate:
		if p.files[uint64(s.at)] == nil {
			p.files[uint64(s.at)] = &platterFile{}
		}
	}
	d := p.folders[s.node]
	d.changes = append(d.changes, s)
}

func (p *platter) sync(node uint64) {
	if d := p.folders[node]; d != nil {
		for _, s := range d.changes {
			change(d.synced, s)
		}
		d.changes = nil
		return
	}
	f := p.files[node]
	for _, s := range f.written {
		f.synced = onto(f.synced, s, nil)
	}
	f.written = nil
}

// change applies a step to a folder's entries.
func change(entries map[string]uint64, s step) {
	name, to, renamed := strings.Cut(string(s.data), "\x00")
	switch {
	case renamed:
		delete(entries, name)
		entries[to] = uint64(s.at)
	case s.kind == journalUnlink:
		delete(entries, name)
	default:
		entries[name] = uint64(s.at)
	}
}

// onto applies a step to an image; keep selects the sectors that reach the disk, nil: all.
func onto(image []byte, s step, keep func() bool) []byte {
	end := s.at + int64(len(s.data))
	switch {
	case s.kind == journalTruncate && s.at < int64(len(image)):
		return image[:s.at]
	case int64(len(image)) < end:
		image = append(image, make([]byte, end-int64(len(image)))...)
	}
	for at := int64(0); at < int64(len(s.data)); at += sector {
		if keep == nil || keep() {
			copy(image[s.at+at:end], s.data[at:min(at+sector, int64(len(s.data)))])
		}
	}
	return image
}

// chance returns a probability that a change without fsync is on the disk.
func chance() float64 { return []float64{0, 0.1, 0.5, 0.9, 1}[rand.IntN(5)] }

// cut writes a possible disk after a power failure to the folder dir.
func (p *platter) cut(t *testing.T, dir string) {
	t.Helper()
	c := &powerCut{platter: p, files: chance(), folders: chance(), images: map[uint64][]byte{}}
	if err := c.folder(rootNode, dir); err != nil {
		t.Fatal(err)
	}
}

type powerCut struct {
	*platter
	files, folders float64           // the probability that an unsynced change is on the disk
	images         map[uint64][]byte // of files, which may have two names
}

func (c *powerCut) folder(node uint64, dir string) error {
	d := c.platter.folders[node]
	entries := maps.Clone(d.synced)
	for _, s := range d.changes {
		if rand.Float64() < c.folders {
			change(entries, s)
		}
	}
	var errs []error
	for name, node := range entries {
		path := filepath.Join(dir, name)
		if c.platter.folders[node] != nil {
			errs = append(errs, os.Mkdir(path, 0o700), c.folder(node, path))
		} else {
			errs = append(errs, os.WriteFile(path, c.file(node), 0o600))
		}
	}
	return errors.Join(errs...)
}

func (c *powerCut) file(node uint64) []byte {
	if image, ok := c.images[node]; ok {
		return image
	}
	f := c.platter.files[node]
	image, written := bytes.Clone(f.synced), f.written
	if rand.IntN(2) == 0 { // two writes of one sector may reach the disk in the wrong order
		written = slices.Clone(written)
		rand.Shuffle(len(written), func(i, j int) { written[i], written[j] = written[j], written[i] })
	}
	for _, s := range written {
		if s.kind == journalTruncate && rand.IntN(2) == 0 {
			continue
		}
		image = onto(image, s, func() bool { return rand.Float64() < c.files })
	}
	c.images[node] = image
	return image
}
