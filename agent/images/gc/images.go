package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/host"
)

// Reasons of the node's events.
const (
	reasonImageGC = "ImageGCFailed"
	reasonFree    = "FreeDiskSpaceFailed"
	reasonDisk    = "InvalidDiskCapacity"
)

// allBytes is more than can ever be freed.
const allBytes = int64(1)<<62 - 1

// UnusedImages removes every unused image, except images that are pinned, preloaded or were just pulled, without
// waiting for the next period.
func (c *Collector) UnusedImages(ctx context.Context) error {
	unused, err := c.unused(ctx)
	if err != nil {
		return err
	}
	_, err = c.free(ctx, unused, "space", allBytes)
	return err
}

// imagePass removes images that are too old and, if disk usage is above the threshold, other unused images.
func (c *Collector) imagePass(ctx context.Context) {
	err := c.freeEnough(ctx)
	if err == nil || ctx.Err() != nil {
		c.imageGCFailed = false
		return
	}
	c.Log.Warn("failed to remove images", zap.Error(err))
	if c.imageGCFailed { // as upstream: report only a repeated failure
		c.Node.Event(corev1.EventTypeWarning, reasonImageGC, "%v", err)
	}
	c.imageGCFailed = true
}

func (c *Collector) freeEnough(ctx context.Context) error {
	unused, err := c.unused(ctx)
	if err != nil {
		return err
	}
	old := c.policy.TooOld(unused, c.usage.Began(), c.Clock.Now())
	if _, err := c.free(ctx, old, "age", allBytes); err != nil {
		return err
	}
	disk, err := c.disk(ctx)
	if err != nil {
		return err
	}
	want := c.policy.ToFree(disk.Total, disk.Free)
	if want == 0 {
		return nil
	}
	unused = slices.DeleteFunc(unused, func(i Image) bool {
		return slices.ContainsFunc(old, func(o Image) bool { return o.ID == i.ID })
	})
	freed, err := c.free(ctx, unused, "space", want)
	if err == nil && freed < want {
		//nolint:staticcheck // upstream's text
		err = fmt.Errorf("Failed to garbage collect required amount of images. "+
			"Attempted to free %d bytes, but only found %d bytes eligible to free.", want, freed)
		c.Node.Event(corev1.EventTypeWarning, reasonFree, "%v", err)
	}
	return err
}

// disk returns the file system that contains the images.
func (c *Collector) disk(ctx context.Context) (host.Amount, error) {
	c.Images.Find(ctx)
	disk, err := host.Disk(c.Images.Root())
	if err == nil && disk.Total <= 0 {
		err = errors.New("invalid capacity 0 on image filesystem")
		c.Node.Event(corev1.EventTypeWarning, reasonDisk, "%v", err)
	}
	return disk, err
}

// unused returns the images that may be removed, least recently used first.
func (c *Collector) unused(ctx context.Context) ([]Image, error) {
	images, err := c.Runtime.ListImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	containers, err := c.Runtime.ListContainers(ctx, nil) // including those of other clients
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	used := map[string]bool{}
	for _, by := range containers {
		used[by.GetImage().GetImage()], used[by.ImageRef], used[by.ImageId] = true, true, true
	}
	delete(used, "")
	if c.InUse != nil {
		for _, name := range c.InUse() {
			used[name] = true
		}
	}
	now := c.Clock.Now()
	return c.policy.Unused(c.usage.Detect(images, used, c.Preloaded(), now), now), nil
}

// free removes images until enough is free.
func (c *Collector) free(ctx context.Context, list []Image, reason string, enough int64) (freed int64, err error) {
	for _, img := range list {
		if freed >= enough {
			break
		}
		if err := c.Runtime.RemoveImage(ctx, img.ID); err != nil {
			return freed, fmt.Errorf("remove image %s: %w", img.ID, err)
		}
		c.ImageRemoved(img.ID)
		freed += img.Size
		c.imagesRemoved.WithLabelValues(reason).Inc()
		c.Log.Info("image removed", zap.String("image", img.ID), zap.Strings("names", img.Names),
			zap.Int64("bytes", img.Size), zap.String("reason", reason))
		defer c.Node.ImagesChanged()
	}
	return freed, nil
}
