package blockmap

import (
	"context"
	"sync"

	"coppice/blocks/internal/objects"
)

const (
	// maxUploads limits concurrent requests; the segments among them limit the memory to about 64 MiB.
	maxUploads        = 16
	maxSegmentUploads = 3
)

// uploads puts objects in the background and keeps the first failure.
type uploads struct {
	store    objects.Store
	context  context.Context
	cancel   context.CancelCauseFunc
	slots    chan struct{}
	segments chan struct{}
	group    sync.WaitGroup
}

func newUploads(ctx context.Context, store objects.Store) *uploads {
	ctx, cancel := context.WithCancelCause(ctx)
	return &uploads{store: store, context: ctx, cancel: cancel,
		slots: make(chan struct{}, maxUploads), segments: make(chan struct{}, maxSegmentUploads)}
}

// put waits for a free slot, not for the upload. When the content is not needed any more, it calls free.
func (u *uploads) put(slots chan struct{}, key string, content []byte, free func()) error {
	select {
	case slots <- struct{}{}:
	case <-u.context.Done():
		return context.Cause(u.context)
	}
	u.group.Add(1)
	go func() {
		defer u.group.Done()
		defer func() { <-slots }()
		err := objects.Retry(u.context, "uploading "+key, func(ctx context.Context) error {
			return u.store.Put(ctx, key, content)
		})
		free()
		if err != nil {
			u.cancel(err)
		}
	}()
	return nil
}

// wait returns when all objects are durable.
func (u *uploads) wait() error {
	u.group.Wait()
	return context.Cause(u.context)
}

// close stops uploads that run and waits for them.
func (u *uploads) close() {
	u.cancel(context.Canceled)
	u.group.Wait()
}
