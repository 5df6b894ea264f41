package chain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/segment"
)

func (p *pass) readManifests(ctx context.Context) error {
	removed := map[string]bool{}
	for info, err := range p.Disks.Store.List(ctx, "removed/"+p.org+"/", "") {
		if err != nil {
			return err
		}
		removed[info.Key] = true
	}
	chains := map[string][]int64{}
	for info, err := range p.Disks.Store.List(ctx, "disks/"+p.org+"/", "") {
		if err != nil {
			return err
		}
		number, err := parseNumber(info.Key)
		if err != nil {
			return err
		}
		disk := strings.Split(info.Key, "/")[2]
		chains[disk] = append(chains[disk], number)
	}
	for disk, numbers := range chains {
		if err := p.readChain(ctx, disk, numbers, removed); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) readChain(ctx context.Context, disk string, numbers []int64, removed map[string]bool) error {
	head, err := p.Disks.Get(ctx, p.org, disk, slices.Max(numbers))
	if errors.Is(err, ErrNoData) {
		return p.overtaken(disk)
	}
	if err != nil {
		return err
	}
	for _, number := range numbers {
		key := manifestKey(p.org, disk, number)
		version, err := p.Disks.Get(ctx, p.org, disk, number)
		if errors.Is(err, ErrNoData) && slices.Contains(p.before.Dead, key) {
			continue
		}
		if errors.Is(err, ErrNoData) {
			return p.overtaken(disk)
		}
		if err != nil {
			return err
		}
		if isDead(head, version, removed[removedKey(p.org, disk, number)]) {
			p.now.Dead = append(p.now.Dead, key)
			if slices.Contains(p.before.Dead, key) {
				continue
			}
		}
		if err := p.addRoot(ctx, version.Root); err != nil {
			return err
		}
	}
	return nil
}

// overtaken ends a pass during which another collector removed a manifest that this one would have to follow: its
// successors, which are not listed, may refer to the same data.
func (p *pass) overtaken(disk string) error {
	return fmt.Errorf("%w: another collector is faster at %s/%s", ErrConflict, p.org, disk)
}

// addRoot makes a root, its leaves and their segments live.
func (p *pass) addRoot(ctx context.Context, text string) error {
	name, err := segment.ParseHash(text)
	if err != nil {
		return err
	}
	var root *blockmap.Root
	isNew, err := p.mark(name, blockmap.RootKey(p.org, name), func() (err error) {
		root, err = p.Source.Root(ctx, p.org, name)
		return err
	})
	if err != nil || !isNew {
		return err
	}
	for _, leaf := range root.Leaves {
		if err := p.addLeaf(ctx, leaf); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) addLeaf(ctx context.Context, name segment.Hash) error {
	var leaf *blockmap.Leaf
	isNew, err := p.mark(name, blockmap.LeafKey(p.org, name), func() (err error) {
		leaf, err = p.Source.Leaf(ctx, p.org, name)
		return err
	})
	if err != nil || !isNew {
		return err
	}
	for _, pieces := range leaf.Blocks {
		for _, piece := range pieces {
			p.live[segment.Key(p.org, piece.Segment)] = true
		}
	}
	return nil
}

// mark makes an object live after `read` has read it. It reports whether the object was not live before. An empty name
// has no object, and a missing object is counted.
func (p *pass) mark(name segment.Hash, key string, read func() error) (bool, error) {
	if name == (segment.Hash{}) || p.live[key] {
		return false, nil
	}
	err := read()
	if errors.Is(err, objects.ErrNotFound) {
		p.result.Missing++
		return false, nil
	}
	if err != nil {
		return false, err
	}
	p.live[key] = true
	return true, nil
}
