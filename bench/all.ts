/** Measures every figure in one run, each with its floor or rival; writes bench/results/all.md and .json. */
import { benchCreate, benchWarmCreate } from './create.ts';
import { benchCrowd } from './crowd.ts';
import { benchDashboard } from './dashboard.ts';
import { benchDisks } from './disks.ts';
import { benchDiskStore } from './disk-store.ts';
import { benchEgress } from './egress.ts';
import { benchExec } from './exec.ts';
import { benchFiles } from './files.ts';
import { benchFirstExec } from './first-exec.ts';
import { benchFirstPreparation } from './first-preparation.ts';
import { startBenchService, type BenchService } from './fixtures/bench-service.ts';
import { startEgressBench } from './fixtures/egress-bench.ts';
import { startForkService } from './fixtures/fork-service.ts';
import { report, type Figure } from './fixtures/report.ts';
import { benchFootprint } from './footprint.ts';
import { benchForkChildren, benchForkMemory, benchForkPause, benchForkRam } from './fork.ts';
import { benchHibernate } from './hibernate.ts';
import { benchMemory } from './memory.ts';
import { benchNetworkPolicy } from './network-policy.ts';
import { benchPorts } from './ports.ts';
import { benchRestart } from './restart.ts';
import { benchSessions } from './sessions.ts';

type Measure = (bench: BenchService) => Promise<Figure[]>;

/** Without the warm pool a create includes its whole cost; with the pool it shows the time that a user waits. */
const RUNS: readonly [start: () => Promise<BenchService>, measures: readonly Measure[]][] = [
  [
    () => startBenchService(0),
    [
      benchFootprint,
      benchCreate,
      benchExec,
      benchFiles,
      benchPorts,
      benchSessions,
      benchMemory,
      benchCrowd,
      benchFirstPreparation,
    ],
  ],
  [() => startBenchService(2), [benchWarmCreate, benchFirstExec]],
  [startForkService, [benchForkPause, benchForkRam, benchForkChildren, benchForkMemory, benchHibernate]],
];

const figures: Figure[] = [];
let accelerator = '';
for (const [start, measures] of RUNS) {
  await using bench = await start();
  accelerator = bench.accelerator;
  for (const measure of measures) {
    process.stderr.write(`${measure.name} …\n`);
    figures.push(...(await measure(bench)));
  }
}
{
  await using bench = await startEgressBench();
  process.stderr.write(`${benchEgress.name} …\n`);
  figures.push(...(await benchEgress(bench)));
}
process.stderr.write(`${benchDashboard.name} …\n`);
figures.push(...(await benchDashboard()));
process.stderr.write(`${benchRestart.name} …\n`);
figures.push(...(await benchRestart()));
process.stderr.write(`${benchNetworkPolicy.name} …\n`);
figures.push(...benchNetworkPolicy());
process.stderr.write(`${benchDisks.name} …\n`);
figures.push(...(await benchDisks()).figures, ...(await benchDiskStore()));
report('all', accelerator, figures);
