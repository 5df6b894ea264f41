package chain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/segment"
)

// actor is a runner that works on random disks and starts again after each crash.
type actor struct {
	*world
	random *rand.Rand
	name   string
	disks  *chain.Disks
	held   map[string]chain.Holding

	operation int
	// beforeCommit is called when all objects of a drain are stored.
	beforeCommit func()
}

func (a *actor) run(ctx context.Context, operations int) {
	var at *process
	for a.operation = range operations {
		if at == nil || at.isDead {
			at = a.newProcess(a.random, 150)
			a.disks = chain.New(at)
		}
		disk := a.drawDisk()
		err := a.act(ctx, disk)
		for _, allowed := range []error{errCrashed, chain.ErrConflict, chain.ErrStale, chain.ErrHeld, chain.ErrExists,
			chain.ErrNoDisk, chain.ErrNoData, chain.ErrHasForks} {
			if errors.Is(err, allowed) {
				err = nil
			}
		}
		if err != nil {
			a.t.Errorf("%s on %s: %v", a.name, disk, err)
		}
	}
}

// drawDisk moves on to new disks: a deleted one never comes back.
func (a *actor) drawDisk() string {
	return fmt.Sprintf("d%d", a.operation/25+a.random.IntN(simulatedDisks))
}

func (a *actor) act(ctx context.Context, disk string) error {
	holding, isHeld := a.held[disk]
	if !isHeld {
		holding = chain.Holding{Org: "o", Disk: disk}
	}
	switch a.random.IntN(12) {
	case 0:
		_, err := a.disks.Create(ctx, "o", disk, simulatedBytes)
		return err
	case 1, 2:
		version, err := a.disks.Take(ctx, "o", disk, a.name, 0)
		if err == nil {
			a.held[disk] = chain.Holding{Org: "o", Disk: disk, Runner: a.name, Epoch: version.Epoch}
		}
		return err
	case 3:
		version, err := a.disks.Snapshot(ctx, holding, "s")
		if err == nil && a.random.IntN(2) == 0 {
			err = a.disks.RemoveSnapshot(ctx, "o", disk, version.Number)
		}
		return err
	case 4:
		_, err := a.disks.Release(ctx, holding)
		return err
	case 5, 6:
		head, err := a.disks.Head(ctx, "o", disk)
		if err != nil {
			return err
		}
		if a.random.IntN(3) == 0 {
			_, err = a.disks.Revert(ctx, holding, max(1, head.Number-a.random.Int64N(6)))
			return err
		}
		_, err = a.disks.Fork(ctx, "o", disk, max(1, head.Number-a.random.Int64N(3)), a.drawDisk())
		return err
	case 7:
		if a.random.IntN(3) > 0 {
			return nil
		}
		return a.disks.Delete(ctx, "o", disk)
	case 8:
		return a.compact(ctx, holding)
	default:
		return a.drain(ctx, holding)
	}
}

func (a *actor) drain(ctx context.Context, holding chain.Holding) error {
	if holding.Runner == "" {
		return nil
	}
	upload, err := a.disks.BeginUpload(ctx, holding)
	if err != nil {
		return err
	}
	root, _, err := a.build(ctx, upload, func(builder *blockmap.Builder, content []byte) error {
		return a.change(ctx, builder, content)
	})
	if err != nil {
		return err
	}
	made, err := upload.Commit(ctx, root, "", 0)
	return a.checkMade(holding, made, err)
}

func (a *actor) compact(ctx context.Context, holding chain.Holding) error {
	if holding.Runner == "" {
		return nil
	}
	// The segments are chosen at random: whether they are sparse only changes what a compaction costs.
	moved := map[segment.Hash]bool{}
	for info, err := range a.disks.Store.List(ctx, segment.Prefix("o"), "") {
		if err != nil {
			return err
		}
		id, err := segment.ParseHash(strings.TrimPrefix(info.Key, segment.Prefix("o")))
		if err != nil {
			return err
		}
		moved[id] = a.random.IntN(2) == 0
	}
	upload, err := a.disks.BeginCompaction(ctx, holding)
	if err != nil {
		return err
	}
	root, stats, err := a.build(ctx, upload, func(builder *blockmap.Builder, _ []byte) error {
		return builder.Move(ctx, moved, simulatedBytes/4)
	})
	if err != nil {
		return err
	}
	if stats.ChangedBytes == 0 {
		return upload.Abort(ctx)
	}
	made, err := upload.CommitCompaction(ctx, root)
	if err == nil {
		a.mutex.Lock()
		a.compacted++
		a.mutex.Unlock()
	}
	return a.checkMade(holding, made, err)
}

// build stores all objects of an upload. work may change the content.
func (a *actor) build(ctx context.Context, upload *chain.Upload, work func(*blockmap.Builder, []byte) error) (root segment.Hash, stats blockmap.Stats, err error) {
	base, err := upload.Base.RootHash()
	if err != nil {
		return root, stats, err
	}
	version, err := blockmap.OpenVersion(ctx, blockmap.NewSource(a.disks.Store, nil), "o", base, simulatedBytes)
	if err != nil {
		return root, stats, err
	}
	builder := blockmap.NewBuilder(ctx, version, upload.ID)
	defer builder.Close()
	a.mutex.Lock()
	content := bytes.Clone(a.content[base.String()])
	a.mutex.Unlock()
	if err := work(builder, content); err != nil {
		return root, stats, err
	}
	root, stats, err = builder.Finish(ctx)
	if err != nil {
		return root, stats, err
	}
	a.mutex.Lock()
	a.content[root.String()], a.base[root.String()] = content, base.String()
	a.mutex.Unlock()
	if a.beforeCommit != nil {
		a.beforeCommit()
	}
	return root, stats, nil
}

func (a *actor) checkMade(holding chain.Holding, made chain.Version, err error) error {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if err == nil && !a.made[fmt.Sprintf("disks/o/%s/%010d", holding.Disk, made.Number)] {
		a.t.Errorf("version %d of %s was acknowledged but never the head", made.Number, holding.Disk)
	}
	return err
}

func (a *actor) change(ctx context.Context, builder *blockmap.Builder, content []byte) error {
	first := a.random.IntN(simulatedPages - 1)
	for page := first; page < simulatedPages; page += 1 + a.random.IntN(20) {
		part := content[page*segment.PageBytes : (page+1)*segment.PageBytes]
		for i := range part {
			part[i] = byte(a.random.Uint32())
		}
		err := builder.Apply(ctx, blockmap.Change{Offset: int64(page * segment.PageBytes), Length: segment.PageBytes,
			Read: func(to []byte, at int64) error { copy(to, part[at:]); return nil }})
		if err != nil {
			return err
		}
	}
	return nil
}
