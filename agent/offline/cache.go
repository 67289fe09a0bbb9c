package offline

import (
	"bytes"
	"context"
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

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
)

const (
	// objectsDir is the folder of objects that were read one by one, allDir that of a list without a selector.
	objectsDir = "objects"
	allDir     = "all"
	// maxObjects is the maximum number of files in objectsDir; the oldest ones are removed.
	maxObjects = 2000
	// complete is the file that marks a list whose objects are all there.
	complete = ".complete"
	// ofNamespace begins the name of the folder of a list in one namespace.
	ofNamespace = "namespace="
	// tokensDir is the folder of service account tokens.
	tokensDir = "tokens"
)

// cache contains a folder for each resource, in it a folder for each selector of a list and one for objects that were
// read one by one. A file is written only if what matters of the object has changed. The functions that write are called
// only by do, which runs one of them at a time; those that read are called by anybody, because files are replaced.
type cache struct {
	dir   string
	empty func(resource schema.GroupVersionResource, subresource string) client.Object
	log   *zap.Logger

	writes chan func()   // to run
	ended  chan struct{} // closed when run has ended
	// followed are the resources of which this process has read the whole list, which its changes follow. Only writes use
	// it.
	followed map[schema.GroupVersionResource]bool
}

// run runs the writes, one after the other, until ctx ends.
func (c *cache) run(ctx context.Context) {
	defer close(c.ended)
	for {
		select {
		case write := <-c.writes:
			write()
		case <-ctx.Done():
			return
		}
	}
}

// do waits until run has run a write. When run has ended, nothing is written any more.
func (c *cache) do(write func()) {
	done := make(chan struct{})
	select {
	case c.writes <- func() { defer close(done); write() }:
		<-done
	case <-c.ended:
	}
}

func (c *cache) resource(gvr schema.GroupVersionResource) string {
	return filepath.Join(c.dir, gvr.GroupResource().String())
}

// folder returns the folder of a list.
func (c *cache) folder(sel client.Selector) string {
	var selects []string
	if sel.Namespace != "" {
		selects = append(selects, ofNamespace+sel.Namespace)
	}
	if sel.Labels != nil && !sel.Labels.Empty() {
		selects = append(selects, sel.Labels.String())
	}
	if sel.Fields != nil && !sel.Fields.Empty() {
		selects = append(selects, sel.Fields.String())
	}
	if len(selects) == 0 {
		return filepath.Join(c.resource(sel.Resource), allDir)
	}
	return filepath.Join(c.resource(sel.Resource), fileName(strings.Join(selects, ";")))
}

// fileName returns a text as the name of a file.
func fileName(text string) string {
	const most = 200 // of the 255 bytes of a name
	if name := url.PathEscape(text); len(name) <= most {
		return name
	}
	return digest(text)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func objectFile(namespace, name string) string { return fileName(namespace+","+name) + ".json" }

func isComplete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, complete))
	return err == nil
}

// isOfNamespace reports whether a list is that of a whole namespace, which is a part of the list of the whole resource.
func isOfNamespace(sel client.Selector) bool {
	return sel.Namespace != "" && sel.Labels == nil && sel.Fields == nil
}

// list returns a list; false if it was never read. Of the pods of the whole cluster it has only those of this node.
func (c *cache) list(sel client.Selector) (objs []client.Object, ok bool) {
	if isOfNamespace(sel) && !isComplete(c.folder(sel)) {
		objs, ok := c.read(sel.Resource, filepath.Join(c.resource(sel.Resource), allDir))
		return slices.DeleteFunc(objs, func(o client.Object) bool { return o.GetNamespace() != sel.Namespace }), ok
	}
	if !wholeCluster(sel) {
		return c.read(sel.Resource, c.folder(sel))
	}
	lists, _ := filepath.Glob(filepath.Join(c.resource(sel.Resource), "*", complete))
	for _, list := range lists {
		pods, _ := c.read(sel.Resource, filepath.Dir(list))
		for _, obj := range pods {
			node := fields.Set{"spec.nodeName": obj.(*corev1.Pod).Spec.NodeName}
			if sel.Fields == nil || sel.Fields.Matches(node) {
				objs = append(objs, obj)
			}
		}
	}
	return objs, len(lists) > 0
}

// read returns the objects in a folder; false if they are not complete. A list of pods with a damaged file is not
// complete: the agent would end the pod.
func (c *cache) read(resource schema.GroupVersionResource, dir string) (objs []client.Object, ok bool) {
	if !isComplete(dir) {
		return nil, false
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, false
	}
	for _, file := range files {
		if obj := c.decode(file, c.empty(resource, "")); obj != nil {
			objs = append(objs, obj)
		} else if resource == client.Pods {
			return nil, false
		}
	}
	return objs, true
}

// decode reads a file into an object; nil if there is none, or if it is damaged.
func (c *cache) decode(file string, into client.Object) client.Object {
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.Error("failed to read an object from the cache", zap.String("file", file), zap.Error(err))
		}
		return nil
	}
	return into
}

// putList replaces a list. That of the whole resource also replaces those of namespaces, while it is followed: a node
// whose pod network is not Monopod's does not follow Services.
func (c *cache) putList(sel client.Selector, objs []client.Object) {
	if wholeCluster(sel) || isOfNamespace(sel) && c.followed[sel.Resource] {
		return
	}
	dir := c.folder(sel)
	want := map[string]bool{}
	ok := true
	for _, obj := range objs {
		name := objectFile(obj.GetNamespace(), obj.GetName())
		want[name] = true
		ok = c.write(sel.Resource, filepath.Join(dir, name), obj) && ok
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	for _, file := range files {
		if !want[filepath.Base(file)] {
			ok = c.remove(file) && ok
		}
	}
	switch {
	case !ok:
		c.remove(filepath.Join(dir, complete))
	case !isComplete(dir):
		c.store(filepath.Join(dir, complete), nil, true)
	}
	if isOwnPods(sel) {
		c.keepTokens(objs)
	}
	if ok && filepath.Base(dir) == allDir && !c.followed[sel.Resource] {
		c.followed[sel.Resource] = true
		c.removeNamespaces(sel.Resource)
	}
}

// removeNamespaces removes the lists of namespaces of a resource.
func (c *cache) removeNamespaces(resource schema.GroupVersionResource) {
	dirs, _ := filepath.Glob(filepath.Join(c.resource(resource), ofNamespace+"*"))
	for _, dir := range dirs {
		if strings.Contains(filepath.Base(dir), fileName(";")) {
			continue // it selects something else, too
		}
		if err := os.RemoveAll(dir); err != nil {
			c.log.Error("failed to remove a list from the cache", zap.Error(err))
		}
	}
}

// putChange applies a change to a list.
func (c *cache) putChange(sel client.Selector, typ watch.EventType, obj client.Object) {
	if wholeCluster(sel) || typ != watch.Added && typ != watch.Modified && typ != watch.Deleted {
		return
	}
	dir := c.folder(sel)
	file := filepath.Join(dir, objectFile(obj.GetNamespace(), obj.GetName()))
	var ok bool
	if typ == watch.Deleted {
		if ok = c.remove(file); isOwnPods(sel) {
			c.forgetTokens(func(uid types.UID) bool { return uid == obj.GetUID() })
		}
	} else {
		ok = c.write(sel.Resource, file, obj)
	}
	if !ok { // the list on disk is wrong from now on
		c.remove(filepath.Join(dir, complete))
	}
}

// retain removes the lists of a resource except those wanted, and the objects that no wanted list contains.
func (c *cache) retain(resource schema.GroupVersionResource, wanted []client.Selector) {
	want, files := map[string]bool{objectsDir: true}, map[string]bool{}
	for _, sel := range wanted {
		want[filepath.Base(c.folder(sel))] = true
		if name, ok := sel.Fields.RequiresExactMatch("metadata.name"); ok {
			files[objectFile(sel.Namespace, name)] = true
		}
	}
	dirs, _ := os.ReadDir(c.resource(resource)) // none before the first list
	for _, dir := range dirs {
		if want[dir.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(c.resource(resource), dir.Name())); err != nil {
			c.log.Error("failed to remove objects from the cache", zap.Error(err))
		}
	}
	objects, _ := os.ReadDir(filepath.Join(c.resource(resource), objectsDir)) // none before the first read
	for _, file := range objects {
		if !files[file.Name()] {
			c.remove(filepath.Join(c.resource(resource), objectsDir, file.Name()))
		}
	}
}

// object returns an object from any list or from those that were read one by one; nil if there is none.
func (c *cache) object(ref client.Ref) client.Object {
	files, _ := filepath.Glob(filepath.Join(c.resource(ref.Resource), "*", escape(objectFile(ref.Namespace, ref.Name))))
	for _, file := range files {
		if obj := c.decode(file, c.empty(ref.Resource, "")); obj != nil {
			return obj
		}
	}
	return nil
}

// isMissing reports whether the object is followed by its name and does not exist.
func (c *cache) isMissing(ref client.Ref) bool {
	dir := c.folder(ref.Selector())
	_, err := os.Stat(filepath.Join(dir, objectFile(ref.Namespace, ref.Name)))
	return isComplete(dir) && errors.Is(err, fs.ErrNotExist)
}

// escape returns a pattern of filepath.Glob that matches only name.
func escape(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// putObject stores an object that was read by its name, unless a list contains it.
func (c *cache) putObject(ref client.Ref, obj client.Object) {
	dir, name := c.resource(ref.Resource), objectFile(ref.Namespace, ref.Name)
	files, _ := filepath.Glob(filepath.Join(dir, "*", escape(name)))
	if slices.ContainsFunc(files, func(file string) bool { return filepath.Base(filepath.Dir(file)) != objectsDir }) {
		c.remove(filepath.Join(dir, objectsDir, name))
		return
	}
	c.write(ref.Resource, filepath.Join(dir, objectsDir, name), obj)
	c.prune(filepath.Join(dir, objectsDir))
}

// forget removes an object that no longer exists.
func (c *cache) forget(ref client.Ref) {
	c.remove(filepath.Join(c.resource(ref.Resource), objectsDir, objectFile(ref.Namespace, ref.Name)))
}

// prune removes the oldest files beyond maxObjects.
func (c *cache) prune(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= maxObjects {
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
	for _, e := range entries[:len(entries)-maxObjects] {
		c.remove(filepath.Join(dir, e.Name()))
	}
}

// tokenFile returns the file of a token, whose name begins with the UID of its pod.
func (c *cache) tokenFile(ref client.Ref, spec *authenticationv1.TokenRequestSpec) string {
	var uid types.UID
	if spec.BoundObjectRef != nil {
		uid = spec.BoundObjectRef.UID
	}
	key, _ := json.Marshal(spec) // never fails
	return filepath.Join(c.dir, tokensDir, fileName(string(uid))+","+digest(ref.Namespace+","+ref.Name+","+string(key)))
}

func (c *cache) putToken(ref client.Ref, spec *authenticationv1.TokenRequestSpec,
	token *authenticationv1.TokenRequest) {
	file := c.tokenFile(ref, spec)
	c.write(client.Secrets, file, token)
	c.prune(filepath.Dir(file))
}

// token returns the last token; nil if there is none.
func (c *cache) token(ref client.Ref, spec *authenticationv1.TokenRequestSpec) *authenticationv1.TokenRequest {
	token, _ := c.decode(c.tokenFile(ref, spec), &authenticationv1.TokenRequest{}).(*authenticationv1.TokenRequest)
	return token
}

// keepTokens removes the tokens of other pods.
func (c *cache) keepTokens(pods []client.Object) {
	uids := map[types.UID]bool{}
	for _, pod := range pods {
		uids[pod.GetUID()] = true
	}
	c.forgetTokens(func(uid types.UID) bool { return !uids[uid] })
}

func (c *cache) forgetTokens(of func(pod types.UID) bool) {
	files, _ := os.ReadDir(filepath.Join(c.dir, tokensDir)) // none before the first token
	for _, file := range files {
		if uid, _, _ := strings.Cut(file.Name(), ","); of(types.UID(uid)) {
			c.remove(filepath.Join(c.dir, tokensDir, file.Name()))
		}
	}
}

// write writes an object if it differs from the file in more than its revision and heartbeats.
func (c *cache) write(resource schema.GroupVersionResource, file string, obj client.Object) (ok bool) {
	next, err := json.Marshal(essential(obj))
	if err != nil {
		c.log.Error("failed to encode an object", zap.Error(err))
		return false
	}
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, next) {
		return true
	}
	return c.store(file, next, isDurable(resource))
}

// isDurable reports whether the objects are on disk when the agent gets them: without them pods do not start. Others,
// such as EndpointSlices, may be some seconds old after a power cut.
func isDurable(resource schema.GroupVersionResource) bool {
	return resource == client.Pods || resource == client.Secrets || resource == client.ConfigMaps
}

// store replaces a file. If the disk is full, the previous file stays.
func (c *cache) store(file string, data []byte, durable bool) (ok bool) {
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	switch {
	case err != nil:
	case durable:
		err = auth.WriteSecret(file, data)
	default:
		next := file + ".next"
		if err = os.WriteFile(next, data, 0o600); err == nil {
			err = os.Rename(next, file)
		}
	}
	if err != nil {
		c.log.Error("failed to write the cache for a time without servers", zap.Error(err))
	}
	return err == nil
}

func (c *cache) remove(file string) (ok bool) {
	err := os.Remove(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Error("failed to remove an object from the cache", zap.Error(err))
		return false
	}
	return true
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
