/** Measures an exec's round trip through the service, against the same request sent directly to the agent. */
import { IMAGE, startBenchService, type BenchService } from './fixtures/bench-service.ts';
import { resumeAsService, agentExec } from './fixtures/agent-calls.ts';
import { FloorVm, floorInputs } from './fixtures/floor-vm.ts';
import { interleave, timeMs } from './fixtures/measure.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const ROUNDS = 60;

export async function benchExec(bench: BenchService): Promise<Figure[]> {
  const { id } = await bench.api.create({ image: IMAGE });
  const { vm } = await FloorVm.restore(floorInputs(bench.service, id), 'cf-tap0');
  await resumeAsService(vm.session);
  const values = await interleave(
    [
      { name: 'exec true through the service', run: () => timeMs(() => bench.api.exec(id, 'true')) },
      { name: 'exec true straight to the agent', run: () => timeMs(() => agentExec(vm.session, 'true')) },
    ],
    ROUNDS,
  );
  await vm.end();
  await bench.api.destroy(id);
  const against = 'the same request straight to the agent';
  const figure = compare({ name: 'exec true round trip', against, goal: '+ ≤ 1.5 ms', unit: 'ms', values });
  const aboveMs = figure.ours.median - figure.floor.median;
  return [{ ...figure, goal: `${figure.goal} (measured + ${aboveMs.toFixed(2)} ms)` }];
}

if (import.meta.main) {
  await using bench = await startBenchService(0);
  report('exec', bench.accelerator, await benchExec(bench));
}
