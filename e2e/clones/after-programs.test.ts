/** Programs, their clocks, files and connections, after every kind of clone. */
import { BASE_IMAGE } from '../../packages/server/src/lib/base-image.ts';
import { describeClones } from '../fixtures/clones/clone-check.ts';
import { startEcho } from '../fixtures/clones/clone-echo.ts';
import { environment, generation, identity } from '../fixtures/clones/clone-identity-checks.ts';
import { outbound } from '../fixtures/clones/clone-network-checks.ts';
import {
  channels,
  counters,
  files,
  httpServer,
  processes,
  readers,
} from '../fixtures/clones/clone-process-checks.ts';
import { sqlite } from '../fixtures/clones/clone-sqlite-check.ts';
import { monotonicClock, randomNumbers, timers, wallClock } from '../fixtures/clones/clone-time-checks.ts';
import { shared } from '../fixtures/service/shared.ts';

describeClones({
  title: 'programs in a clone',
  api: async () => (await shared()).api,
  // Not earlier: images are built from packages of an archive whose address this server may hide.
  surroundings: startEcho,
  shape: () => Promise.resolve({ image: BASE_IMAGE, mem_mib: 512, vcpus: 2 }),
  install: async (parent) => {
    await parent.installProbe();
    await parent.startProbe();
  },
  shortKinds: ['restore', 'rollback'],
  checks: [
    outbound,
    wallClock,
    randomNumbers,
    monotonicClock,
    identity,
    generation,
    environment,
    channels,
    timers,
    counters,
    readers,
    httpServer,
    sqlite,
    files,
    processes,
  ],
});
