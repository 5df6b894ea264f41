/** Measures upload and download throughput through the service, against the agent's stream alone. */
import { IMAGE, startBenchService, type BenchService } from './fixtures/bench-service.ts';
import { agentDownload, agentUpload, resumeAsService } from './fixtures/agent-calls.ts';
import { FloorVm, floorInputs } from './fixtures/floor-vm.ts';
import { interleave, timeMs } from './fixtures/measure.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const ROUNDS = 10;
const SIZE_MB = 256;
const PATH = '/tmp/bench-file';

export async function benchFiles(bench: BenchService): Promise<Figure[]> {
  const content = Buffer.alloc(SIZE_MB * 1_000_000, 7);
  const { id } = await bench.api.create({ image: IMAGE });
  const { vm } = await FloorVm.restore(floorInputs(bench.service, id), 'cf-tap0');
  await resumeAsService(vm.session);
  const rate = async (work: () => Promise<unknown>): Promise<number> =>
    (SIZE_MB * 1000) / (await timeMs(work));
  const url = `/v1/runs/${id}/files`;
  const upload = () => bench.api.call('POST', `${url}/upload?path=${PATH}`, { raw: content });
  const download = async () => (await bench.api.fetch('GET', `${url}/download?path=${PATH}`)).arrayBuffer();
  const pairs = [
    ['upload', () => rate(upload), () => rate(() => agentUpload(vm.session, PATH, content))],
    ['download', () => rate(download), () => rate(() => agentDownload(vm.session, PATH))],
  ] as const;
  const figures: Figure[] = [];
  for (const [name, ours, floor] of pairs) {
    const values = await interleave(
      [
        { name: `${name} through the service`, run: ours },
        { name: `${name}, the agent's stream`, run: floor },
      ],
      ROUNDS,
    );
    const against = "the agent's stream alone";
    figures.push(
      compare({ name: `${name} of ${SIZE_MB} MB`, against, goal: '≥ 0.85', unit: 'MB/s', values }),
    );
  }
  await vm.end();
  await bench.api.destroy(id);
  return figures;
}

if (import.meta.main) {
  await using bench = await startBenchService(0);
  report('files', bench.accelerator, await benchFiles(bench));
}
