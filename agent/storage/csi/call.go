package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
)

// call is a request to a driver for a volume.
type call struct {
	manager        *Manager
	driver         *driver
	object         *storagev1.CSIDriver
	volume         *Volume
	publishContext map[string]string // of the attachment
	stagingPath    string            // as the driver sees it; empty: the volume is not staged
}

// capability returns how the volume is used.
func (c *call) capability() *csi.VolumeCapability {
	v := c.volume
	out := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: accessMode(c.driver, v)}}
	if v.block() {
		out.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return out
	}
	mount := &csi.VolumeCapability_MountVolume{}
	if v.Persistent != nil {
		mount.FsType, mount.MountFlags = v.Persistent.Spec.CSI.FSType, slices.Clone(v.Persistent.Spec.MountOptions)
		if label := c.label(); label != "" {
			mount.MountFlags = append(mount.MountFlags, fmt.Sprintf("context=%q", label))
		}
	} else if v.Inline.FSType != nil {
		mount.FsType = *v.Inline.FSType
	}
	if group := fsGroup(v.Pod); group != nil && c.driver.has(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP) {
		mount.VolumeMountGroup = strconv.FormatInt(*group, 10)
	}
	out.AccessType = &csi.VolumeCapability_Mount{Mount: mount}
	return out
}

// label returns the SELinux label with which the volume is mounted, so that the runtime need not label each file; empty:
// none. As upstream, only volumes of one pod have one, if their driver supports that.
func (c *call) label() string {
	v := c.volume
	supported := c.object != nil && c.object.Spec.SELinuxMount != nil && *c.object.Spec.SELinuxMount
	if !supported || !slices.Contains(v.Persistent.Spec.AccessModes, corev1.ReadWriteOncePod) ||
		v.Pod.Spec.SecurityContext == nil || !c.manager.cfg.SELinux() {
		return ""
	}
	o := v.Pod.Spec.SecurityContext.SELinuxOptions
	if o == nil || o.Level == "" {
		return ""
	}
	return "system_u:object_r:container_file_t:" + o.Level
}

// accessMode returns the mode of the volume's first access mode, as upstream.
func accessMode(d *driver, v *Volume) csi.VolumeCapability_AccessMode_Mode {
	mode := corev1.ReadWriteOnce
	if v.Persistent != nil && len(v.Persistent.Spec.AccessModes) > 0 {
		mode = v.Persistent.Spec.AccessModes[0]
	}
	several := d.has(csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	switch {
	case mode == corev1.ReadOnlyMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == corev1.ReadWriteMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case several && mode == corev1.ReadWriteOncePod:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case several:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	}
	return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
}

// complete adds the volume's context and the secrets to a request to publish it: the volume's own and, if the
// CSIDriver asks for them, the pod's names and its tokens.
func (c *call) complete(ctx context.Context, request *csi.NodePublishVolumeRequest) (err error) {
	v, values := c.volume, map[string]string{}
	ref := (*corev1.SecretReference)(nil)
	if v.Persistent != nil {
		maps.Copy(values, v.Persistent.Spec.CSI.VolumeAttributes)
		ref = v.Persistent.Spec.CSI.NodePublishSecretRef
	} else {
		maps.Copy(values, v.Inline.VolumeAttributes)
		if local := v.Inline.NodePublishSecretRef; local != nil {
			ref = &corev1.SecretReference{Namespace: v.Pod.Namespace, Name: local.Name}
		}
	}
	if info := c.object.Spec.PodInfoOnMount; info != nil && *info {
		maps.Copy(values, map[string]string{
			"csi.storage.k8s.io/pod.name":            v.Pod.Name,
			"csi.storage.k8s.io/pod.namespace":       v.Pod.Namespace,
			"csi.storage.k8s.io/pod.uid":             string(v.Pod.UID),
			"csi.storage.k8s.io/serviceAccount.name": v.Pod.Spec.ServiceAccountName,
			"csi.storage.k8s.io/ephemeral":           strconv.FormatBool(v.Inline != nil),
		})
	}
	secrets, err := c.secrets(ctx, ref)
	if err != nil {
		return fmt.Errorf("NodePublishSecretRef: %w", err)
	}
	tokens, err := c.tokens(ctx)
	if err != nil {
		return err
	}
	to := values
	if in := c.object.Spec.ServiceAccountTokenInSecrets; in != nil && *in {
		if secrets == nil {
			secrets = map[string]string{}
		}
		to = secrets
	}
	maps.Copy(to, tokens)
	request.VolumeContext, request.Secrets = values, secrets
	return nil
}

// tokens returns the tokens of the pod's service account that the CSIDriver requests, as one value.
func (c *call) tokens(ctx context.Context) (map[string]string, error) {
	if len(c.object.Spec.TokenRequests) == 0 {
		return nil, nil
	}
	all := map[string]authenticationv1.TokenRequestStatus{}
	for _, r := range c.object.Spec.TokenRequests {
		value, expires, err := c.manager.cfg.Tokens.Token(ctx, c.volume.Pod,
			&corev1.ServiceAccountTokenProjection{Audience: r.Audience, ExpirationSeconds: r.ExpirationSeconds})
		if err != nil {
			return nil, err
		}
		all[r.Audience] = authenticationv1.TokenRequestStatus{Token: value, ExpirationTimestamp: metav1.NewTime(expires)}
	}
	text, err := json.Marshal(all)
	return map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": string(text)}, err
}

// secrets returns the content of a Secret; nil: none is named.
func (c *call) secrets(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	s, err := client.Get[*corev1.Secret](ctx, c.manager.cfg.Client, ref.Namespace, ref.Name)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, value := range s.Data {
		out[name] = string(value)
	}
	return out, nil
}
