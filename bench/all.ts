/** Every figure in one run, with its floor or rival; writes bench/results/all.md and .json. */
import { benchCreate } from './create.ts';
import { benchExec } from './exec.ts';
import { benchFiles } from './files.ts';
import { benchFirstExec } from './first-exec.ts';
import { startBenchService } from './fixtures/bench-service.ts';
import { report, type Figure } from './fixtures/report.ts';
import { benchMemory } from './memory.ts';

await using bench = await startBenchService();
const figures: Figure[] = [];
for (const measure of [benchCreate, benchFirstExec, benchExec, benchFiles, benchMemory]) {
  process.stderr.write(`${measure.name} …\n`);
  figures.push(...(await measure(bench)));
}
report('all', bench.accelerator, figures);
