package gc

import (
	"cmp"
	"slices"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Images records when images were detected and last used. It is in memory only: after a restart all images count as
// new. The zero value works.
type Images struct {
	mu    sync.Mutex // guards the fields below
	began time.Time
	usage map[string]*imageUsage
}

type imageUsage struct{ first, last time.Time }

// Image is an image and what is known about its use.
type Image struct {
	ID    string
	Names []string
	Size  int64
	First time.Time // when it was detected
	Last  time.Time // when it was last used; zero: not since First
	InUse bool      // used by a container, dead or alive
	Kept  bool      // pinned or preloaded
}

// Detect records the current images. used contains the names and IDs of images that are in use, keep the names of
// images that must not be removed.
func (m *Images) Detect(list []*cri.Image, used, keep map[string]bool, now time.Time) []Image {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.began.IsZero() {
		m.began = now
	}
	next := make(map[string]*imageUsage, len(list))
	out := make([]Image, 0, len(list))
	for _, i := range list {
		u := m.usage[i.Id]
		if u == nil {
			u = &imageUsage{first: now}
		}
		names := slices.Concat([]string{i.Id}, i.RepoTags, i.RepoDigests)
		image := Image{ID: i.Id, Names: names[1:], Size: int64(i.Size), First: u.first, InUse: containsAny(names, used),
			Kept: i.Pinned || containsAny(names, keep)}
		if image.InUse {
			u.last = now
		}
		image.Last = u.last
		next[i.Id] = u
		out = append(out, image)
	}
	m.usage = next
	return out
}

func containsAny(names []string, set map[string]bool) bool {
	return slices.ContainsFunc(names, func(n string) bool { return set[n] })
}

// Began returns the time of the first Detect.
func (m *Images) Began() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.began
}

// Unused returns the images that may be removed now, least recently used first.
func (p *Policy) Unused(images []Image, now time.Time) []Image {
	var out []Image
	for _, i := range images {
		if !i.InUse && !i.Kept && now.Sub(i.First) >= p.ImageMinAge {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b Image) int {
		return cmp.Or(a.Last.Compare(b.Last), a.First.Compare(b.First), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// TooOld returns the images of Unused that have not been used for ImageMaxAge. It returns none until ImageMaxAge after
// began, the time since which use is recorded.
func (p *Policy) TooOld(unused []Image, began, now time.Time) []Image {
	if p.ImageMaxAge == 0 || now.Sub(began) <= p.ImageMaxAge {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(unused), func(i Image) bool {
		last := i.Last
		if last.IsZero() {
			last = i.First
		}
		return now.Sub(last) <= p.ImageMaxAge
	})
}

// ToFree returns how many bytes must be freed on a disk: 0 if its usage is below the high threshold, otherwise enough
// for the low threshold.
func (p *Policy) ToFree(total, free int64) int64 {
	if p.ImageHigh == 100 || total <= 0 {
		return 0
	}
	if used := 100 - int(float64(free)/float64(total)*100); used < p.ImageHigh { // percent, rounded up, as upstream's
		return 0
	}
	return max(0, int64(float64(total)*float64(100-p.ImageLow)/100)-free)
}
