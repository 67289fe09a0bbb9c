package pull

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/distribution/reference"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/host/checkpoint"
)

// Records records on the disk which images were pulled with whose credentials, as kubelet does. Before a pull it writes
// a pullingRecord, so that an image whose pull was interrupted does not count as preloaded; after the pull it writes a
// pulledRecord with the source of the credentials. Only hashes of credentials are stored. Files are written only when
// an image is pulled, or when another secret turns out to contain the same credentials.
type Records struct {
	dir string // contains the folders pulling and pulled, each with a file for each image

	mu      sync.Mutex         // guards the fields below and the files
	pulling map[string]running // by image
	// interrupted are the images whose pulls an earlier process did not finish, with the IDs that they had before.
	interrupted map[string]string
}

// running are the running pulls of an image.
type running struct {
	pulls int
	was   string // ID of the image that was present before the first; empty: none
}

// pullingRecord is the record of a running or interrupted pull. Unlike upstream's it says what was present before the
// pull: otherwise a preloaded image could not be used while a pod that always pulls it cannot reach the registry.
type pullingRecord struct {
	Image string `json:"image"`
	Was   string `json:"was,omitempty"` // the image's ID
}

// pulledRecord is the record of an image. It has the fields of kubelet's ImagePulledRecord.
type pulledRecord struct {
	Updated time.Time `json:"lastUpdatedTime"`
	Ref     string    `json:"imageRef"`
	// Credentials are by repository, because the same image may be pulled from several repositories.
	Credentials map[string]access `json:"credentialMapping,omitempty"`
}

// access defines which pods may use an image.
type access struct {
	Secrets []Source `json:"kubernetesSecrets,omitempty"`
	Node    bool     `json:"nodePodsAccessible,omitempty"` // all pods: it was pulled without a pod's credentials
}

// maxSecrets is the number of secrets of a record up to which others are added without a pull.
const maxSecrets = 100

// NewRecords returns the records in dir, which is created at the first pull.
func NewRecords(dir string) (*Records, error) {
	r := &Records{dir: dir, pulling: map[string]running{}, interrupted: map[string]string{}}
	entries, err := os.ReadDir(filepath.Join(dir, "pulling"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("records of image pulls: %w", err)
	}
	for _, e := range entries {
		var p pullingRecord
		if ok, err := read(filepath.Join(dir, "pulling", e.Name()), &p); err == nil && ok {
			r.interrupted[p.Image] = p.Was
		}
	}
	return r, nil
}

func (r *Records) file(kind, name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(r.dir, kind, "sha256-"+hex.EncodeToString(sum[:]))
}

func read(path string, into any) (bool, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	return err == nil, err
}

func write(path string, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = checkpoint.File(path).Write(text)
	}
	return err
}

// begin records that a pull of an image begins. present is the image that its name means now; nil: none. end must be
// called after it.
func (r *Records) begin(image string, present *cri.Image) error {
	image = repositoryTag(image)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.pulling[image]
	if was, ok := r.interrupted[image]; ok {
		now.was = was // who pulled what is present is not known
	} else if now.pulls == 0 && present != nil {
		now.was = present.Id
	}
	if err := write(r.file("pulling", image), pullingRecord{image, now.was}); err != nil {
		return fmt.Errorf("failed to record image pull intent: %w", err)
	}
	now.pulls++
	r.pulling[image] = now
	return nil
}

// end records the result of a pull: the image, and the source of the credentials, which is nil if no pod's credentials
// were used. img is nil if the pull failed. If the result cannot be recorded, the pullingRecord stays, so that every
// pod must authenticate.
func (r *Records) end(image string, img *cri.Image, source *Source) error {
	full := repositoryTag(image)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.pulling[full]
	if now.pulls--; now.pulls > 0 {
		r.pulling[full] = now
	} else {
		delete(r.pulling, full)
	}
	if _, interrupted := r.interrupted[full]; img == nil && interrupted {
		return nil
	}
	if img != nil {
		if err := r.add(image, img.Id, source); err != nil {
			return fmt.Errorf("failed to record who pulled image %q: %w", image, err)
		}
		delete(r.interrupted, full)
	}
	if now.pulls > 0 {
		return nil
	}
	return os.RemoveAll(r.file("pulling", full))
}

// add adds the source of credentials to the record of an image; nil: every pod may use the image. The caller holds mu.
func (r *Records) add(image, id string, source *Source) error {
	path, rec := r.file("pulled", id), pulledRecord{}
	if _, err := read(path, &rec); err != nil {
		rec = pulledRecord{} // a damaged record is replaced
	}
	name := repository(image)
	who, known := rec.Credentials[name]
	at := -1
	if source != nil {
		at = slices.IndexFunc(who.Secrets, func(s Source) bool { return s.Same(*source) })
	}
	switch {
	case known && (who.Node || at >= 0 && who.Secrets[at] == *source):
		return nil
	case source == nil:
		who = access{Node: true}
	case at >= 0:
		who.Secrets[at] = *source
	default:
		who.Secrets = append(who.Secrets, *source)
	}
	if rec.Credentials == nil {
		rec.Credentials = map[string]access{}
	}
	rec.Credentials[name], rec.Ref, rec.Updated = who, id, time.Now().UTC().Truncate(time.Second)
	return write(path, rec)
}

// find returns which pods may use an image; known is false if the node never pulled the image.
func (r *Records) find(image string, img *cri.Image) (who access, known bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rec pulledRecord
	if known, err = read(r.file("pulled", img.Id), &rec); known || err != nil {
		return rec.Credentials[repository(image)], true, err
	}
	for _, name := range append([]string{repositoryTag(image)}, slices.Concat(img.RepoTags, img.RepoDigests)...) {
		now, pulling := r.pulling[name]
		was, interrupted := r.interrupted[name]
		known = known || pulling && now.was != img.Id || interrupted && was != img.Id
	}
	return access{}, known, nil
}

// Removed removes the record of an image that was removed.
func (r *Records) Removed(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = os.RemoveAll(r.file("pulled", id)) // a record without an image only wastes disk space
}

// repository returns the full name of an image without tag and digest.
func repository(image string) string {
	if named, err := reference.ParseNormalizedNamed(image); err == nil {
		return named.Name()
	}
	return image
}

// repositoryTag returns the full name of an image, as the runtime reports it.
func repositoryTag(image string) string {
	if named, err := reference.ParseDockerRef(image); err == nil {
		return named.String()
	}
	return image
}
