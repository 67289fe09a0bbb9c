package cmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/cmd/commandline"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/status"
)

// report is an archive that is being written.
type report struct {
	ctx      context.Context
	server   *local.Server
	to       *archive
	progress *commandline.Progress
	parts    []part
	err      error // the first failure to write the archive
}

// part is a file of the archive, or the reason why it is missing.
type part struct {
	name, what string
	size       int
	missing    error
}

// add adds a file after its secrets are removed.
func (r *report) add(name, what string, content []byte, err error) {
	if err != nil {
		r.parts = append(r.parts, part{name: name, what: what, missing: err})
		return
	}
	content = redactText(content)
	if strings.HasPrefix(name, "log") {
		content = redactPairs(content)
	}
	_, _ = r.progress.Write(content) // never fails
	r.parts = append(r.parts, part{name: name, what: what, size: len(content)})
	if err := r.to.Add("monopod-inspect/"+name, content); err != nil {
		r.err = cmp.Or(r.err, err)
	}
}

// value adds a value as JSON.
func (r *report) value(name, what string, v any) {
	var out bytes.Buffer
	err := commandline.PrintJSON(&out, v)
	r.add(name, what, out.Bytes(), err)
}

// page adds the server's response for a path. JSON is redacted like an object.
func (r *report) page(name, what, path string) {
	data, err := r.server.Read(r.ctx, path)
	if err == nil && strings.HasSuffix(name, ".json") {
		data, err = redactJSON(data)
	}
	r.add(name, what, data, err)
}

func (r *report) status(name, what string, now time.Time) {
	facts, err := status.Collect(r.ctx, r.server, now)
	if err != nil {
		r.add(name, what, nil, err)
		return
	}
	r.value(name, what, status.Of(facts))
}

// maxListed is the maximum number of files in the list of the data folder.
const maxListed = 2000

// folder adds a list of files. The folders of pods and of containerd are omitted: they have too many.
func (r *report) folder(name, what, dir string) {
	var out bytes.Buffer
	n := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			fmt.Fprintln(&out, path, err)
			return nil
		}
		below, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil // the file was removed
		}
		fmt.Fprintf(&out, "%s %10d %s %s\n", info.Mode(), info.Size(), info.ModTime().UTC().Format(time.RFC3339), below)
		if n++; n >= maxListed {
			return fs.SkipAll
		}
		if d.IsDir() && slices.Contains([]string{"pods", "containerd", "logs", "cni"}, below) {
			return fs.SkipDir
		}
		return nil
	})
	r.add(name, what, out.Bytes(), err)
}

// objects adds all objects that the server has, a file for each resource.
func (r *report) objects() {
	resources, err := r.resources()
	if err != nil {
		r.add("objects", "all objects", nil, err)
	}
	for _, res := range resources {
		data, err := r.server.Read(r.ctx, res.path)
		if err == nil {
			data, err = redactJSON(data)
		}
		what := "objects"
		if res.name == "events" {
			what = "Events: what happened in the last hour"
		}
		r.add("objects/"+res.file+".json", what, data, err)
	}
}

// listed is a resource that can be listed.
type listed struct{ name, file, path string }

// resources asks which resources the server has, in their preferred versions.
func (r *report) resources() (all []listed, err error) {
	groups := metav1.APIGroupList{}
	if err := r.server.JSON(r.ctx, "/apis", &groups); err != nil {
		return nil, err
	}
	paths := map[string]string{"/api/v1": ""}
	for _, g := range groups.Groups {
		paths["/apis/"+g.PreferredVersion.GroupVersion] = "." + g.Name
	}
	for at, suffix := range paths {
		var list metav1.APIResourceList
		if err := r.server.JSON(r.ctx, at, &list); err != nil {
			r.add("objects"+at, "objects", nil, err) // an aggregated API server may not respond
			continue
		}
		for _, res := range list.APIResources {
			if slices.Contains(res.Verbs, "list") && (res.Name != "events" || suffix == "") {
				all = append(all, listed{res.Name, res.Name + suffix, at + "/" + res.Name})
			}
		}
	}
	slices.SortFunc(all, func(a, b listed) int { return cmp.Compare(a.file, b.file) })
	return all, nil
}

const (
	// troubledPods is the maximum number of pods whose logs are in a report.
	troubledPods = 20
	// logLines is the number of last lines of a log.
	logLines = "100"
)

// logs adds the last lines of the logs of containers that have restarted or are not ready.
func (r *report) logs() {
	var pods corev1.PodList
	if err := r.server.JSON(r.ctx, "/api/v1/pods", &pods); err != nil {
		return // objects has reported the error
	}
	n := 0
	for _, pod := range pods.Items {
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			ended := c.State.Terminated
			if c.RestartCount == 0 && (c.Ready || ended != nil && ended.ExitCode == 0) || n >= troubledPods {
				continue
			}
			n++
			for file, previous := range map[string]string{".txt": "false", ".previous.txt": "true"} {
				if previous == "true" && c.LastTerminationState.Terminated == nil ||
					previous == "false" && c.State.Waiting != nil {
					continue
				}
				q := url.Values{"container": {c.Name}, "tailLines": {logLines}, "previous": {previous}}
				r.page("logs/"+pod.Namespace+"/"+pod.Name+"/"+c.Name+file, "the end of the log of a container with problems",
					"/api/v1/namespaces/"+pod.Namespace+"/pods/"+pod.Name+"/log?"+q.Encode())
			}
		}
	}
}

// list is a table of the parts.
func (r *report) list() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
	objects, size, missing := 0, 0, []part{}
	for _, p := range r.parts {
		switch {
		case p.missing != nil:
			missing = append(missing, p)
		case strings.HasPrefix(p.name, "objects/"):
			objects, size = objects+1, size+p.size
		default:
			fmt.Fprintf(w, "  %s\t%s\t%s\n", p.name, words.Bytes(int64(p.size)), p.what)
		}
	}
	if objects > 0 {
		fmt.Fprintf(w, "  objects/\t%s\tall objects of %s\n", words.Bytes(int64(size)), words.Count(objects, "resource"))
	}
	_ = w.Flush() // to a Builder
	for _, p := range missing {
		fmt.Fprintf(&out, "  %s is missing: %v\n", p.name, p.missing)
	}
	return out.String()
}

// readme adds a README with the list.
func (r *report) readme() error {
	text := "A report of monopod inspect.\n\n" + r.list() + "\nLeft out: " + strings.Join(leftOut, ", ") + ".\n"
	return r.to.Add("monopod-inspect/README.txt", []byte(text))
}

// redactJSON removes secrets from an object, a list of them, or any other JSON.
func redactJSON(data []byte) ([]byte, error) {
	var v any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err := commandline.PrintJSON(&out, redact(v, ""))
	return out.Bytes(), err
}
