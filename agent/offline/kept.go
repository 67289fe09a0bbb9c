package offline

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
)

const (
	// gets is the name of the folder of objects that were read one by one.
	gets = "objects"
	// maxGets is the maximum number of files in gets; the oldest ones go.
	maxGets = 2000
	// complete is the file that marks a list whose objects are all there.
	complete = ".complete"
)

// kept are the files: a folder for each resource, in it a folder for each selector of a list and one for objects that
// were read one by one. A file is written only if what matters of the object has changed.
type kept struct {
	dir   string
	empty func(resource schema.GroupVersionResource, subresource string) client.Object
	log   *zap.Logger

	mu sync.Mutex // one write at a time
}

func (k *kept) resource(gvr schema.GroupVersionResource) string {
	return filepath.Join(k.dir, gvr.GroupResource().String())
}

// folder returns the folder of a list.
func (k *kept) folder(sel client.Selector) string {
	var selects []string
	if sel.Namespace != "" {
		selects = append(selects, "namespace="+sel.Namespace)
	}
	if sel.Labels != nil && !sel.Labels.Empty() {
		selects = append(selects, sel.Labels.String())
	}
	if sel.Fields != nil && !sel.Fields.Empty() {
		selects = append(selects, sel.Fields.String())
	}
	name := "all"
	if len(selects) > 0 {
		name = bounded(strings.Join(selects, ";"))
	}
	return filepath.Join(k.resource(sel.Resource), name)
}

// bounded returns a text as the name of a file.
func bounded(text string) string {
	const most = 200 // of the 255 bytes of a name
	if name := url.PathEscape(text); len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func fileOf(namespace, name string) string { return bounded(namespace+","+name) + ".json" }

// list returns a list; false if it was never read. Of the pods of the whole cluster it has only those of this node.
func (k *kept) list(sel client.Selector) (objs []client.Object, ok bool) {
	if !wholeCluster(sel) {
		return k.read(sel.Resource, k.folder(sel))
	}
	lists, _ := filepath.Glob(filepath.Join(k.resource(sel.Resource), "*", complete))
	for _, list := range lists {
		pods, _ := k.read(sel.Resource, filepath.Dir(list))
		for _, obj := range pods {
			node := fields.Set{"spec.nodeName": obj.(*corev1.Pod).Spec.NodeName}
			if sel.Fields == nil || sel.Fields.Matches(node) {
				objs = append(objs, obj)
			}
		}
	}
	return objs, len(lists) > 0
}

func (k *kept) read(resource schema.GroupVersionResource, dir string) (objs []client.Object, ok bool) {
	if _, err := os.Stat(filepath.Join(dir, complete)); err != nil {
		return nil, false
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, false
	}
	for _, file := range files {
		if obj := k.decode(file, k.empty(resource, "")); obj != nil {
			objs = append(objs, obj)
		}
	}
	return objs, true
}

// decode reads a file into an object; nil if there is none. A damaged file counts as missing.
func (k *kept) decode(file string, into client.Object) client.Object {
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			k.log.Error("failed to read a kept object", zap.String("file", file), zap.Error(err))
		}
		return nil
	}
	return into
}

// listed replaces a list.
func (k *kept) listed(sel client.Selector, objs []client.Object) {
	if wholeCluster(sel) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	dir := k.folder(sel)
	want := map[string]bool{}
	for _, obj := range objs {
		name := fileOf(obj.GetNamespace(), obj.GetName())
		want[name] = true
		k.write(filepath.Join(dir, name), obj)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	for _, file := range files {
		if !want[filepath.Base(file)] {
			k.remove(file)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, complete)); err != nil {
		k.store(filepath.Join(dir, complete), nil)
	}
}

// changed applies a change to a list.
func (k *kept) changed(sel client.Selector, typ watch.EventType, obj client.Object) {
	if wholeCluster(sel) || typ != watch.Added && typ != watch.Modified && typ != watch.Deleted {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	file := filepath.Join(k.folder(sel), fileOf(obj.GetNamespace(), obj.GetName()))
	if typ == watch.Deleted {
		k.remove(file)
		return
	}
	k.write(file, obj)
}

// retain removes the lists of a resource except those wanted.
func (k *kept) retain(resource schema.GroupVersionResource, wanted []client.Selector) {
	k.mu.Lock()
	defer k.mu.Unlock()
	want := map[string]bool{gets: true}
	for _, sel := range wanted {
		want[filepath.Base(k.folder(sel))] = true
	}
	dirs, _ := os.ReadDir(k.resource(resource)) // none before the first list
	for _, dir := range dirs {
		if want[dir.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(k.resource(resource), dir.Name())); err != nil {
			k.log.Error("failed to remove kept objects", zap.Error(err))
		}
	}
}

// object returns an object from any list or from those that were read one by one; nil if there is none.
func (k *kept) object(ref client.Ref) client.Object {
	files, _ := filepath.Glob(filepath.Join(k.resource(ref.Resource), "*", escape(fileOf(ref.Namespace, ref.Name))))
	for _, file := range files {
		if obj := k.decode(file, k.empty(ref.Resource, "")); obj != nil {
			return obj
		}
	}
	return nil
}

// escape returns a pattern of filepath.Glob that matches only name.
func escape(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// got keeps an object that was read one by one, unless a list contains it.
func (k *kept) got(ref client.Ref, obj client.Object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	dir, name := k.resource(ref.Resource), fileOf(ref.Namespace, ref.Name)
	files, _ := filepath.Glob(filepath.Join(dir, "*", escape(name)))
	if slices.ContainsFunc(files, func(file string) bool { return filepath.Base(filepath.Dir(file)) != gets }) {
		return
	}
	k.write(filepath.Join(dir, gets, name), obj)
	k.prune(filepath.Join(dir, gets))
}

// forget removes an object that no longer exists.
func (k *kept) forget(ref client.Ref) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.remove(filepath.Join(k.resource(ref.Resource), gets, fileOf(ref.Namespace, ref.Name)))
}

// prune removes the oldest files beyond maxGets.
func (k *kept) prune(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= maxGets {
		return
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int {
		x, errX := a.Info()
		y, errY := b.Info()
		if errX != nil || errY != nil {
			return 0
		}
		return x.ModTime().Compare(y.ModTime())
	})
	for _, e := range entries[:len(entries)-maxGets] {
		k.remove(filepath.Join(dir, e.Name()))
	}
}

// tokenFile returns the file of a token for a pod.
func (k *kept) tokenFile(ref client.Ref, spec *authenticationv1.TokenRequestSpec) string {
	key, _ := json.Marshal(spec) // never fails
	sum := sha256.Sum256(key)
	return filepath.Join(k.dir, "tokens", gets, fileOf(ref.Namespace, ref.Name+","+hex.EncodeToString(sum[:])))
}

func (k *kept) issued(ref client.Ref, spec *authenticationv1.TokenRequestSpec, token *authenticationv1.TokenRequest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	file := k.tokenFile(ref, spec)
	k.write(file, token)
	k.prune(filepath.Dir(file))
}

func (k *kept) token(ref client.Ref, spec *authenticationv1.TokenRequestSpec) client.Object {
	return k.decode(k.tokenFile(ref, spec), &authenticationv1.TokenRequest{})
}

// write writes an object if it differs from the file in more than its revision and heartbeats.
func (k *kept) write(file string, obj client.Object) {
	next, err := json.Marshal(essential(obj))
	if err != nil {
		k.log.Error("failed to encode an object", zap.Error(err))
		return
	}
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, next) {
		return
	}
	k.store(file, next)
}

// store writes a file. If the disk is full, the previous file stays.
func (k *kept) store(file string, data []byte) {
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = auth.WriteSecret(file, data)
	}
	if err != nil {
		k.log.Error("failed to keep an object for a time without servers", zap.Error(err))
	}
}

func (k *kept) remove(file string) {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.log.Error("failed to remove a kept object", zap.Error(err))
	}
}

// essential returns a copy of an object without what changes though nothing happens: an idle node writes nothing.
func essential(obj client.Object) client.Object {
	out := obj.DeepCopyObject().(client.Object)
	out.SetManagedFields(nil)
	out.SetResourceVersion("")
	if node, ok := out.(*corev1.Node); ok {
		for i := range node.Status.Conditions {
			node.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return out
}
