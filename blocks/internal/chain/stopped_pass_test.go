package chain_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"coppice/blocks/internal/chain"
)

// TestNoMomentOfAPassAndAForkIsUnsafe stops a pass, then a fork, revert or drain, and meanwhile removes what it copies. A pass
// of another collector may crash then, when it has deleted everything and not yet written its mark.
func TestNoMomentOfAPassAndAForkIsUnsafe(t *testing.T) {
	for name, act := range map[string]func(s *scene, disks *chain.Disks) error{
		"fork": forkOf(4),
		"drain": func(s *scene, disks *chain.Disks) error {
			return (&actor{world: s.world, random: rand.New(rand.NewPCG(2, 2)), disks: disks}).drain(s.ctx, s.holder)
		},
		"revert": func(s *scene, disks *chain.Disks) error {
			_, err := disks.Revert(s.ctx, s.holder, 4)
			return err
		},
	} {
		for _, passes := range []int{1, 2} {
			for _, hasCrash := range []bool{false, true} {
				meanwhile := func(s *scene) {
					s.removeSnapshot()
					if hasCrash {
						_ = onePass(s, chain.New(&gate{Store: s.store, world: s.world, crashesAt: "marks/"}))
					}
				}
				t.Run(fmt.Sprint(name, passes, hasCrash), func(t *testing.T) {
					begin := newScene(t)
					begin.collect(1)
					pair := stopped{begin: begin, act: act, meanwhile: meanwhile, passes: passes}
					for pair.run(t) {
						pair.stopOfPass++
					}
				})
			}
		}
	}
}

type stopped struct {
	begin      *scene
	act        func(s *scene, disks *chain.Disks) error
	meanwhile  func(s *scene)
	stopOfPass int
	passes     int
}

// run returns false if the pass has no such operation.
func (p stopped) run(t *testing.T) (isReached bool) {
	for i := 0; ; i++ {
		s := p.begin.clone()
		reached, resume, ended := make(chan bool, 2), make(chan struct{}), make(chan struct{})
		pass := &gate{Store: s.store, world: s.world, stops: map[int]func(){p.stopOfPass: func() { reached <- true; <-resume }}}
		go func() {
			defer close(ended)
			_ = onePass(s, chain.New(pass)) // may find that another was faster
			reached <- false
		}()
		isReached = <-reached
		isActing := false
		finish := func() {
			p.meanwhile(s)
			close(resume)
			<-ended
			s.collect(p.passes)
		}
		_ = p.act(s, chain.New(&gate{Store: s.store, world: s.world, stops: map[int]func(){i: func() {
			isActing = true
			finish()
		}}}))
		if !isActing {
			finish()
		}
		s.verify()
		if t.Failed() {
			t.Fatalf("the pass stopped at %d, the other at %d", p.stopOfPass, i)
		}
		if !isActing || i > 100 || !isReached {
			return isReached
		}
	}
}

// TestAFindThatMeetsTheEndOfAVersionFindsNothing has a pass that listed the announcements, and then deletes a version while a
// fork, announced since, looks for it.
func TestAFindThatMeetsTheEndOfAVersionFindsNothing(t *testing.T) {
	begin := newScene(t)
	for i := 0; i < 40; i++ {
		for j := i; j < i+12; j++ {
			s := begin.clone()
			resume, ended := make(chan struct{}), make(chan struct{})
			reached := make(chan struct{}, 100)
			finish := sync.OnceFunc(func() {
				close(resume)
				<-ended
				s.collect(2)
			})
			isStarted := false
			start := func() {
				isStarted = true
				s.removeSnapshot()
				s.collect(1)
				pass := &gate{Store: s.store, world: s.world, onList: func(prefix string) {
					if prefix == "disks/o/" {
						reached <- struct{}{}
						<-resume
					}
				}}
				go func() {
					defer close(ended)
					s.must(nil, onePass(s, chain.New(pass)))
				}()
				<-reached
			}
			stops := map[int]func(){i: start, j: finish}
			if i == j {
				stops[i] = func() { start(); finish() }
			}
			_ = forkOf(4)(s, chain.New(&gate{Store: s.store, world: s.world, stops: stops}))
			if !isStarted {
				return
			}
			finish()
			s.verify()
			if t.Failed() {
				t.Fatalf("stopped at %d and %d", i, j)
			}
		}
	}
}

// TestAPassDuringWhichAnUploadEndsDeletesNothingOfIt stops a pass, which follows one that met the upload, while that commits.
func TestAPassDuringWhichAnUploadEndsDeletesNothingOfIt(t *testing.T) {
	begin := newScene(t)
	for stop, isReached := 0, true; isReached; stop++ {
		s := begin.clone()
		reached, resume, ended := make(chan bool, 2), make(chan struct{}), make(chan struct{})
		s.actor.beforeCommit = func() {
			s.collect(1)
			pass := &gate{Store: s.store, world: s.world, stops: map[int]func(){stop: func() { reached <- true; <-resume }}}
			go func() {
				defer close(ended)
				_ = onePass(s, chain.New(pass)) // may find that another was faster
				reached <- false
			}()
			isReached = <-reached
		}
		s.drain()
		close(resume)
		<-ended
		s.verify()
		if t.Failed() {
			t.Fatalf("the pass stopped at %d", stop)
		}
	}
}
