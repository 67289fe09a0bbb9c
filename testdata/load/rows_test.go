package load_test

import (
	"fmt"
	"net/http"
	"net/url"
)

// row is a kind of request, or a number of watches.
type row struct {
	name   string
	rounds int
	factor float64 // to reach over the base, by CPU and by rate; 0: none
	limits []limit
	run    func(*target) (sample, error)
	beside func(*target) (sample, error) // what the same program does as base; nil: what run does on the old program
}

// limit is what a figure of the program of today must not exceed, or reach.
type limit struct {
	unit        string
	most, least float64
}

// perSecond is the unit of a limit of the rate.
const perSecond = "a second"

// stored is how many pods there are while requests for pods are measured.
const stored = 10_000

// groups are all rows; the rows of a group are measured on the same servers.
func groups() [][]row {
	return [][]row{{
		{name: "ConfigMap-create-c=1", rounds: 5, factor: 1.5, run: creates("configmaps", configMapBody, 1, 1000)},
		{name: "ConfigMap-create-c=16", rounds: 5, factor: 1.4, run: creates("configmaps", configMapBody, 16, 4000)},
		{name: "ConfigMap-create-c=64", rounds: 5, factor: 1.2, run: creates("configmaps", configMapBody, 64, 4000)},
	}, {
		{name: "pod-create-c=64", rounds: 5, factor: 1.55, run: amongPods(creates("pods", podBody, 64, 3000))},
		{name: "pod-PATCH-status-c=16", rounds: 5, factor: 1.8, run: amongPods(patches)},
		{name: "pod-DELETE-c=16", rounds: 5, factor: 1.3, run: amongPods(deletes)},
		{name: "pod-GET-c=64", rounds: 5, factor: 1.4, run: gets("")},
		{name: "pod-GET-c=64-protobuf-beside-JSON", rounds: 5, factor: 1, run: gets(protobuf), beside: gets("")},
		{name: "LIST-10,000-pods", rounds: 5, factor: 1.5, run: lists("", "", 10)},
		{name: "LIST-10,000-pods-resourceVersion=0", rounds: 5, factor: 1.5, run: lists("?resourceVersion=0", "", 10)},
		{name: "LIST-10,000-pods-in-pages-of-500", rounds: 5, factor: 1.5, run: amongPods(pages)},
		{name: "LIST-1,000-of-10,000-pods-by-label", rounds: 5, factor: 1.5, run: lists("?labelSelector=app%3Dtenth", "", 50)},
		{name: "LIST-10,000-pods-protobuf-beside-JSON", rounds: 5, factor: 1, run: lists("", protobuf, 10), beside: lists("", "", 10)},
	}, {
		{name: "1,000-watches-50-updates/s", rounds: 3, run: fanOut(1000, 50, 200), limits: []limit{{unit: "ms-p99", most: 50}, {unit: "cores", most: 0.6}}},
		{name: "1,000-watches-400-updates/s", rounds: 3, run: fanOut(1000, 400, 1000), limits: []limit{{unit: perSecond, least: 200_000}}},
	}, {
		{name: "9,000-idle-watches", rounds: 1, run: idleWatches(9000, 10), limits: []limit{{unit: "KB-anonymous", most: 5}, {unit: "KB-live", most: 5}}},
	}}
}

// creates creates objects, and removes them again.
func creates(resource string, body func(name, app string) string, workers, n int) func(*target) (sample, error) {
	return func(t *target) (sample, error) {
		ns, err := t.namespace("created")
		if err != nil {
			return sample{}, err
		}
		path := ns + "/" + resource
		s, err := t.measure(workers, n, func(i int) error {
			return t.do(request{method: http.MethodPost, path: path, body: body(number(i), "created")})
		})
		if err != nil {
			return s, err
		}
		return s, each(64, n, func(i int) error { return t.do(remove(path, i)) })
	}
}

func number(i int) string { return fmt.Sprintf("%05d", i) }

func remove(path string, i int) request {
	return request{method: http.MethodDelete, path: path + "/" + number(i) + "?gracePeriodSeconds=0"}
}

// amongPods makes the pods among which a row is measured.
func amongPods(run func(*target) (sample, error)) func(*target) (sample, error) {
	return func(t *target) (sample, error) {
		ns, err := t.namespace("stored")
		if err != nil {
			return sample{}, err
		}
		err = t.once("pods", func() error {
			return each(64, stored, func(i int) error {
				app := "web"
				if i%10 == 0 {
					app = "tenth"
				}
				return t.do(request{method: http.MethodPost, path: ns + "/pods", body: podBody(number(i), app)})
			})
		})
		if err != nil {
			return sample{}, err
		}
		return run(t)
	}
}

const storedPods = "/api/v1/namespaces/stored/pods"

// patches changes the status of pods. Each round writes something new.
func patches(t *target) (sample, error) {
	t.round++
	return t.measure(16, 3000, func(i int) error {
		return t.do(request{method: http.MethodPatch, path: storedPods + "/" + number(i) + "/status", body: fmt.Sprintf(`{"status":{"message":"round %d"}}`, t.round)})
	})
}

// deletes removes pods that it has created.
func deletes(t *target) (sample, error) {
	const n = 3000
	ns, err := t.namespace("removed")
	if err != nil {
		return sample{}, err
	}
	path := ns + "/pods"
	if err := each(64, n, func(i int) error {
		return t.do(request{method: http.MethodPost, path: path, body: podBody(number(i), "removed")})
	}); err != nil {
		return sample{}, err
	}
	return t.measure(16, n, func(i int) error { return t.do(remove(path, i)) })
}

// gets reads one pod again and again.
func gets(accept string) func(*target) (sample, error) {
	return amongPods(func(t *target) (sample, error) {
		return t.measure(64, 15_000, func(int) error {
			return t.do(request{method: http.MethodGet, path: storedPods + "/00000", accept: accept})
		})
	})
}

// lists reads pods n times, one list after the other.
func lists(query, accept string, n int) func(*target) (sample, error) {
	return amongPods(func(t *target) (sample, error) {
		return t.measure(1, n, func(int) error {
			return t.do(request{method: http.MethodGet, path: storedPods + query, accept: accept})
		})
	})
}

// pages reads all pods page by page.
func pages(t *target) (sample, error) {
	return t.measure(1, 10, func(int) error {
		for next := ""; ; {
			m, err := t.read(request{method: http.MethodGet, path: storedPods + "?limit=500&continue=" + url.QueryEscape(next)})
			if err != nil || m.Continue == "" {
				return err
			}
			next = m.Continue
		}
	})
}
