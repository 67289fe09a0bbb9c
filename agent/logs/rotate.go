package logs

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Rotation is the policy of log rotation.
type Rotation struct {
	MaxSize  int64         // bytes at which a log is rotated; negative: never
	MaxFiles int           // of one container, including the current one; at least 2
	Period   time.Duration // interval of checks
}

// DefaultRotation returns upstream's defaults (KubeletConfiguration).
func DefaultRotation() Rotation {
	return Rotation{MaxSize: 10 << 20, MaxFiles: 5, Period: 10 * time.Second}
}

// The names of rotated files are kubelet's: <n>.log.<time>. All but the newest are compressed to <n>.log.<time>.gz,
// with <n>.log.<time>.tmp as a temporary file.
const (
	rotatedTime = "20060102-150405"
	// rotatedFraction is appended if a log is rotated twice in one second. It sorts after the name without it and after
	// its compressed form.
	rotatedFraction = "_.000"
	compressed      = ".gz"
	unfinished      = ".tmp"
)

// Due reports whether the log at path must be rotated now. It returns false for a missing log.
func (r Rotation) Due(path string) bool {
	if r.MaxSize < 0 {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Size() >= r.MaxSize
}

// Rotate rotates a log and compresses its older files.
func (r Rotation) Rotate(path string, now time.Time, reopen func() error) error {
	err := r.Cut(path, now, reopen)
	for more := true; more; {
		var failed error
		more, failed = r.Compress(path)
		err = errors.Join(err, failed)
	}
	return err
}

// Cut renames the log with the time now, and calls reopen to make the writer continue in a new file. It first removes
// the oldest files, so that at most MaxFiles remain; an error there does not prevent the rotation. If reopen fails, Cut
// undoes the rename.
func (r Rotation) Cut(path string, now time.Time, reopen func() error) error {
	return errors.Join(r.removeOldest(path), renameAndReopen(path, now, reopen))
}

func renameAndReopen(path string, now time.Time, reopen func() error) error {
	aside := path + "." + now.UTC().Format(rotatedTime)
	if taken(aside) {
		aside += now.UTC().Format(rotatedFraction)
	}
	if taken(aside) {
		return nil // the next check rotates the log
	}
	if err := os.Rename(path, aside); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	if err := reopen(); err != nil {
		if _, missing := os.Lstat(path); errors.Is(missing, fs.ErrNotExist) {
			err = errors.Join(err, os.Rename(aside, path))
		}
		return fmt.Errorf("reopen log: %w", err)
	}
	return nil
}

// taken reports whether a rotated file has the name, compressed or not.
func taken(aside string) bool {
	_, plain := os.Lstat(aside)
	_, zipped := os.Lstat(aside + compressed)
	return plain == nil || zipped == nil
}

// removeOldest removes the oldest files, so that at most MaxFiles remain after the next rotation. A file that is being
// compressed counts once.
func (r Rotation) removeOldest(path string) error {
	files, err := rotated(path)
	if err != nil {
		return err
	}
	var names []string
	for _, file := range files {
		if !strings.HasSuffix(file, unfinished) {
			names = append(names, strings.TrimSuffix(file, compressed))
		}
	}
	names = slices.Compact(names)
	for len(names) > max(0, r.MaxFiles-2) {
		for _, file := range []string{names[0], names[0] + compressed} {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove old log: %w", err)
			}
		}
		names = names[1:]
	}
	return nil
}

// Compress compresses the oldest uncompressed rotated file of a log, but not the newest one, which may still be read.
// more means that there may be another file to compress. Only one call may run at a time, because Compress removes the
// remains of an interrupted compression.
func (r Rotation) Compress(path string) (more bool, err error) {
	files, err := rotated(path)
	if err != nil {
		return false, err
	}
	if files, err = withoutUnfinished(files); err != nil {
		return false, err
	}
	for _, file := range files[:max(0, len(files)-1)] {
		if strings.HasSuffix(file, compressed) {
			continue
		}
		if err := compress(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, fmt.Errorf("compress log: %w", err)
		}
		return true, nil
	}
	return false, nil
}

// rotated returns the rotated files of a log, oldest first.
func rotated(path string) ([]string, error) {
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range list {
		if strings.HasPrefix(e.Name(), filepath.Base(path)+".") {
			out = append(out, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	slices.Sort(out) // times sort as text
	return out, nil
}

// withoutUnfinished removes the remains of an interrupted compression: a partial file, or a complete one whose original
// still exists. It returns the other files.
func withoutUnfinished(files []string) ([]string, error) {
	var out []string
	for _, file := range files {
		origin := strings.TrimSuffix(file, compressed)
		switch {
		case strings.HasSuffix(file, unfinished),
			origin != file && slices.Contains(files, origin):
			if err := os.Remove(file); err != nil {
				return nil, err
			}
		default:
			out = append(out, file)
		}
	}
	return out, nil
}

// compress atomically replaces a file by its compressed form.
func compress(file string) error {
	temp := file + unfinished
	if err := gzipTo(temp, file); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if err := os.Rename(temp, file+compressed); err != nil {
		return err
	}
	return os.Remove(file)
}

func gzipTo(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	zip := gzip.NewWriter(out)
	if _, err := io.Copy(zip, in); err != nil {
		return err
	}
	return zip.Close()
}

// plain returns the uncompressed files of a log in the order in which they were written. The last one is path,
// whether it exists or not.
func plain(path string) ([]string, error) {
	files, err := rotated(path)
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(f string) bool { return !isPlain(path, f) })
	return append(files, path), nil
}

// isPlain reports whether a file is the log at path or one of its uncompressed rotated files.
func isPlain(path, file string) bool {
	return file == path || strings.HasPrefix(file, path+".") && !strings.HasSuffix(file, compressed) &&
		!strings.HasSuffix(file, unfinished)
}
