package addon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// inventories is the path of the ConfigMaps that contain the inventories.
const inventories = "/api/v1/namespaces/" + metav1.NamespaceSystem + "/configmaps"

// InventoriesPath is the path that lists the inventories, whose Label is the addon's name.
func InventoriesPath() string {
	return inventories + "?" + url.Values{"labelSelector": {Label}}.Encode()
}

// The keys of an inventory's data.
const (
	keyVersion = "version"
	keySource  = "source"
	keyObjects = "objects"
)

// inventory is what the server has of an addon.
type inventory struct {
	set     Set     // without objects
	entries []entry // in the order in which they are applied
	object  metav1.ObjectMeta
}

// inventoryOf decodes an inventory.
func inventoryOf(cm *corev1.ConfigMap) (*inventory, error) {
	i := &inventory{object: cm.ObjectMeta, set: Set{
		Name: cm.Labels[Label], Version: cm.Data[keyVersion], Source: cm.Data[keySource],
	}}
	if err := yaml.Unmarshal([]byte(cm.Data[keyObjects]), &i.entries); err != nil {
		return nil, fmt.Errorf("the inventory in the ConfigMap %s/%s is not valid: %w", cm.Namespace, cm.Name, err)
	}
	return i, nil
}

// inventory returns the inventory of an addon; nil: the addon is not enabled.
func (a *api) inventory(ctx context.Context, addon string) (*inventory, error) {
	var cm corev1.ConfigMap
	err := a.get(ctx, inventories+"/addon-"+url.PathEscape(addon), "", &cm)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if cm.Labels[Label] != addon {
		return nil, fmt.Errorf("the ConfigMap %s/%s is not an inventory: it lacks the label %s=%s; rename it",
			cm.Namespace, cm.Name, Label, addon)
	}
	return inventoryOf(&cm)
}

// save writes the inventory. It fails if another command has changed it meanwhile.
func (a *api) save(ctx context.Context, i *inventory) error {
	objects, err := yaml.Marshal(i.entries)
	if err != nil {
		return err
	}
	name := "addon-" + i.set.Name
	method, path := http.MethodPost, inventories
	if i.object.UID != "" {
		method, path = http.MethodPut, inventories+"/"+name
	}
	body, err := json.Marshal(&corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name,
			Labels: map[string]string{Label: i.set.Name},
			UID:    i.object.UID, ResourceVersion: i.object.ResourceVersion},
		Data: map[string]string{keyVersion: i.set.Version, keySource: i.set.Source, keyObjects: string(objects)},
	})
	if err != nil {
		return err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	query := "?" + url.Values{"fieldManager": {manager}}.Encode()
	resp, err := a.server.Request(ctx, method, path+query, header, bytes.NewReader(body), int64(len(body)))
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("another command changes the addon %s at the same time; try again: %w", i.set.Name, err)
	}
	if err != nil {
		return fmt.Errorf("cannot write the inventory: %w", err)
	}
	defer resp.Body.Close()
	var written corev1.ConfigMap
	if err := json.NewDecoder(resp.Body).Decode(&written); err != nil {
		return err
	}
	i.object = written.ObjectMeta
	return nil
}

// remove deletes the inventory.
func (a *api) remove(ctx context.Context, i *inventory) error {
	e := entry{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: metav1.NamespaceSystem,
		Name: "addon-" + i.set.Name}
	return a.delete(ctx, e, i.object.UID, metav1.DeletePropagationBackground) // it is gone when the request returns
}
