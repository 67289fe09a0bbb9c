package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/runtime/oci"
	"monopod/apiserver/kit/backoff"
)

// settleTime is how long an archive must stay unchanged before it is imported.
const settleTime = 500 * time.Millisecond

// importedArchive is the record of an imported archive, so that it is not imported again after a restart.
type importedArchive struct {
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	Images   []string  `json:"images"`
}

// ImportRuntime contains the methods of runtime.Runtime that an Importer needs.
type ImportRuntime interface {
	Version(ctx context.Context) (*cri.VersionResponse, error)
	ImageStatus(ctx context.Context, image string) (*cri.Image, error)
	ImportImages(ctx context.Context, path string) ([]string, error)
}

// PreloadConfig of an Importer. All but Dir is required.
type PreloadConfig struct {
	Dir     string // of the archives; empty: there are none
	Record  string // the file that records imported archives
	Runtime ImportRuntime
	Clock   clock.WithTicker
	Log     *zap.Logger
	// Arrived is called after new images were imported.
	Arrived func()
	// Imported is called with the result of each import.
	Imported func(names []string, err error)
	// Failed is called, when that changes, with the archives that could not be imported and the reasons; empty: all were
	// imported.
	Failed func(message string)
}

// Importer imports the image archives in a folder.
type Importer struct {
	PreloadConfig
	first       chan struct{}
	lastFailure string // of the last call of Failed; used only by Run
}

// NewImporter returns an importer; Run starts it.
func NewImporter(cfg PreloadConfig) *Importer {
	return &Importer{PreloadConfig: cfg, first: make(chan struct{})}
}

// First returns a channel that is closed when the archives that exist at start were imported.
func (i *Importer) First() <-chan struct{} { return i.first }

// Names returns the images imported from archives.
func (i *Importer) Names() map[string]bool {
	names := map[string]bool{}
	for _, archive := range i.readRecord() {
		for _, name := range archive.Images {
			names[name] = true
		}
	}
	return names
}

// Run imports the archives, and new ones as they appear, until ctx ends.
func (i *Importer) Run(ctx context.Context) {
	if i.Dir == "" {
		close(i.first)
		return
	}
	watch, err := i.watch()
	if err != nil {
		i.Log.Warn("cannot watch the folder of image archives, new ones are imported only at start",
			zap.String("dir", i.Dir), zap.Error(err))
	} else {
		defer watch.Close()
	}
	// Wait until the runtime answers: before, every archive would be imported again.
	for retry := (backoff.Retry{First: 5 * time.Millisecond, Most: time.Second}); ; {
		if _, err := i.Runtime.Version(ctx); err == nil || !retry.Wait(ctx, i.Clock) {
			break
		}
	}
	i.importAll(ctx)
	close(i.first)
	if watch == nil {
		return
	}
	timer := i.Clock.NewTimer(time.Hour) // ends a burst of changes
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-watch.Errors:
			i.Log.Warn("failed to watch the folder of image archives, new ones may be missed", zap.Error(err))
		case ev := <-watch.Events:
			if isArchive(ev.Name) && !ev.Has(fsnotify.Remove) {
				timer.Reset(settleTime)
			}
		case <-timer.C():
			i.importAll(ctx)
		}
	}
}

func (i *Importer) watch() (*fsnotify.Watcher, error) {
	if err := os.MkdirAll(i.Dir, 0o755); err != nil {
		return nil, err
	}
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := watch.Add(i.Dir); err != nil {
		return nil, errors.Join(err, watch.Close())
	}
	return watch, nil
}

func isArchive(name string) bool {
	return slices.ContainsFunc([]string{".tar", ".tar.gz", ".tgz", ".tar.zst"},
		func(ext string) bool { return strings.HasSuffix(name, ext) })
}

// importAll imports every new archive.
func (i *Importer) importAll(ctx context.Context) {
	known := i.readRecord()
	before, arrived := maps.Clone(known), false
	entries, err := os.ReadDir(i.Dir)
	if err != nil {
		i.Log.Error("failed to import image archives", zap.Error(err))
	}
	var failed []string
	for _, e := range entries {
		if name := e.Name(); isArchive(name) && ctx.Err() == nil {
			fresh, err := i.importOne(ctx, name, known)
			if err != nil && ctx.Err() == nil {
				i.Log.Error("failed to import an image archive", zap.String("archive", name), zap.Error(err))
				failed = append(failed, fmt.Sprintf("%s: %.300s", name, reason(err)))
			}
			arrived = arrived || fresh
		}
	}
	if message := strings.Join(failed, "; "); message != i.lastFailure && ctx.Err() == nil {
		i.lastFailure = message
		i.Failed(message)
	}
	if !maps.EqualFunc(before, known,
		func(x, y importedArchive) bool { return x.Size == y.Size && x.Modified.Equal(y.Modified) }) {
		if err := i.writeRecord(known); err != nil {
			i.Log.Warn("failed to record imported images", zap.Error(err))
		}
	}
	if arrived { // also if the archive is in the record: the runtime may have lost its images
		i.Arrived()
	}
}

// reason returns the text of an error without the call and the path, which the message already contains.
func reason(err error) string {
	if wrong := (*oci.WrongPlatform)(nil); errors.As(err, &wrong) {
		return wrong.Error()
	}
	text := err.Error()
	if _, rest, ok := strings.Cut(text, " desc = "); ok { // of gRPC
		return rest
	}
	return text
}

func (i *Importer) readRecord() map[string]importedArchive {
	known := map[string]importedArchive{}
	if b, err := os.ReadFile(i.Record); err == nil {
		_ = json.Unmarshal(b, &known) // without a readable record, the archives are imported again
	}
	return known
}

func (i *Importer) writeRecord(known map[string]importedArchive) error {
	b, err := json.Marshal(known)
	if err != nil {
		return err
	}
	temp := i.Record + ".tmp"
	if err := os.WriteFile(temp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, i.Record)
}

// importOne imports an archive unless its images are present; fresh means that it imported images.
func (i *Importer) importOne(ctx context.Context, name string,
	known map[string]importedArchive) (fresh bool, err error) {
	path := filepath.Join(i.Dir, name)
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	was, ok := known[name]
	absent := func(image string) bool {
		img, err := i.Runtime.ImageStatus(ctx, WithDefaultTag(image))
		return err != nil || img == nil
	}
	if ok && was.Size == info.Size() && was.Modified.Equal(info.ModTime()) && !slices.ContainsFunc(was.Images, absent) {
		return false, nil
	}
	delete(known, name)
	start := i.Clock.Now()
	images, err := i.Runtime.ImportImages(ctx, path)
	i.Imported(images, err)
	if err != nil {
		return len(images) > 0, err
	}
	known[name] = importedArchive{info.Size(), info.ModTime(), images}
	i.Log.Info("image archive imported", zap.String("archive", name), zap.Strings("images", images),
		zap.Duration("took", i.Clock.Since(start)))
	return true, nil
}
