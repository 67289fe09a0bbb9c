package agent

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"monopod/agent/image"
)

// arrival is how long an archive must lie still before it is imported.
const arrival = 500 * time.Millisecond

// imported is what is known of an archive that was imported, so that a restart
// need not do it again.
type imported struct {
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	Images   []string  `json:"images"`
}

// preload imports the archives of ImageDir, then those that arrive, until ctx
// ends.
func (a *Agent) preload(ctx context.Context) {
	if a.cfg.ImageDir == "" {
		close(a.preloaded)
		<-ctx.Done()
		return
	}
	watch, err := a.watchImages()
	if err != nil {
		a.log.Warn("images that arrive will not be noticed", zap.String("dir", a.cfg.ImageDir), zap.Error(err))
	} else {
		defer watch.Close()
	}
	a.awaitRuntime(ctx)
	a.importAll(ctx)
	close(a.preloaded)
	if watch != nil {
		a.importArrivals(ctx, watch)
	}
	<-ctx.Done()
}

func (a *Agent) watchImages() (*fsnotify.Watcher, error) {
	if err := os.MkdirAll(a.cfg.ImageDir, 0o755); err != nil {
		return nil, err
	}
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := watch.Add(a.cfg.ImageDir); err != nil {
		return nil, errors.Join(err, watch.Close())
	}
	return watch, nil
}

// importArrivals waits until a burst of changes is over, then imports what is new.
func (a *Agent) importArrivals(ctx context.Context, watch *fsnotify.Watcher) {
	timer := a.Clock.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-watch.Errors:
			a.log.Warn("images that arrive may not be noticed", zap.Error(err))
		case ev := <-watch.Events:
			if isArchive(ev.Name) && !ev.Has(fsnotify.Remove) {
				timer.Reset(arrival)
			}
		case <-timer.C():
			a.importAll(ctx)
		}
	}
}

func isArchive(name string) bool {
	return slices.ContainsFunc([]string{".tar", ".tar.gz", ".tgz", ".tar.zst"}, func(ext string) bool { return strings.HasSuffix(name, ext) })
}

func (a *Agent) importedPath() string { return filepath.Join(a.cfg.DataDir, "imported.json") }

// importAll imports every archive that has not been, and tells the pods.
func (a *Agent) importAll(ctx context.Context) {
	known := a.knownImports()
	before := maps.Clone(known)
	for _, name := range entries(a.cfg.ImageDir) {
		if !isArchive(name) || ctx.Err() != nil {
			continue
		}
		if err := a.importOne(ctx, name, known); err != nil && ctx.Err() == nil {
			a.log.Error("image archive not imported", zap.String("archive", name), zap.Error(err))
		}
	}
	if maps.EqualFunc(before, known, func(x, y imported) bool { return x.Size == y.Size && x.Modified.Equal(y.Modified) }) {
		return
	}
	if err := a.keepImports(known); err != nil {
		a.log.Warn("imported images not noted down", zap.Error(err))
	}
	a.node.imagesChanged()
	for _, w := range a.all() {
		w.update(func(in *inbox) { in.arrived = true })
	}
}

func (a *Agent) knownImports() map[string]imported {
	known := map[string]imported{}
	if b, err := os.ReadFile(a.importedPath()); err == nil {
		_ = json.Unmarshal(b, &known) // what cannot be read is imported again
	}
	return known
}

func (a *Agent) keepImports(known map[string]imported) error {
	b, err := json.Marshal(known)
	if err != nil {
		return err
	}
	temp := a.importedPath() + ".tmp"
	if err := os.WriteFile(temp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(temp, a.importedPath())
}

func (a *Agent) importOne(ctx context.Context, name string, known map[string]imported) error {
	path := filepath.Join(a.cfg.ImageDir, name)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	was, ok := known[name]
	if ok && was.Size == info.Size() && was.Modified.Equal(info.ModTime()) && a.allPresent(ctx, was.Images) {
		return nil
	}
	delete(known, name)
	start := a.Clock.Now()
	images, err := a.Runtime.ImportImages(ctx, path)
	if err != nil {
		return err
	}
	known[name] = imported{info.Size(), info.ModTime(), images}
	a.log.Info("image archive imported", zap.String("archive", name), zap.Strings("images", images), zap.Duration("took", a.Clock.Since(start)))
	return nil
}

// awaitRuntime waits for a runtime that is not there yet: what it cannot answer
// for would be imported again.
func (a *Agent) awaitRuntime(ctx context.Context) {
	for delay := 5 * time.Millisecond; ; delay = min(2*delay, time.Second) {
		if _, err := a.Runtime.Version(ctx); err == nil || !a.sleep(ctx, delay) {
			return
		}
	}
}

func (a *Agent) allPresent(ctx context.Context, images []string) bool {
	for _, name := range images {
		if img, err := a.Runtime.ImageStatus(ctx, image.Named(name)); err != nil || img == nil {
			return false
		}
	}
	return true
}
