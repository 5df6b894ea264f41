import { HostRecord } from '@coppice/contract';
import type { RunnerMetrics } from '../../../../lib/protocol/metrics-protocol.ts';
import { answers } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import type { Runners } from '../../../runners/runners.ts';
import type { HttpParts } from '../../parts.ts';
import { ACCOUNT } from '../session/account-schema.ts';

type Parts = Pick<HttpParts, 'runners' | 'checkHealth' | 'version' | 'region'>;

export function addGetHost(app: App, { runners, checkHealth, version, region }: Parts): void {
  app.route({
    method: 'GET',
    url: '/account/operator/host',
    schema: {
      ...ACCOUNT,
      operationId: 'getHost',
      summary: 'Get the health, capacity and use of the host; for the operator',
      response: answers(200, HostRecord, [401, 403, 503]),
    },
    handler: async ({ log }) => {
      const [fault, measured] = await Promise.all([
        checkHealth().then(
          () => null,
          (error: unknown) => (error instanceof Error ? error.message : String(error)),
        ),
        measure(runners).catch((error: unknown) => {
          log.warn({ err: error }, 'the runner could not be measured');
          return undefined;
        }),
      ]);
      const serves = fault === null;
      return {
        version,
        region,
        serves,
        fault,
        runner: measured === undefined ? null : buildRunner(measured),
      };
    },
  });
}

/** Rejects without a runner that is connected. */
async function measure(runners: Runners): Promise<RunnerMetrics> {
  return runners.any().client.measures.runner();
}

function buildRunner(measured: RunnerMetrics): NonNullable<HostRecord['runner']> {
  const {
    accelerator,
    confinement,
    versions,
    vms,
    paused_vms: paused,
    capacity,
    warm_pool,
    disks,
  } = measured;
  const { qemu, kernel, agent } = versions;
  return {
    accelerator,
    confinement,
    versions: { qemu, kernel, agent },
    sandboxes: vms,
    paused,
    vcpus: capacity.vcpus,
    mem_mib: capacity.mem_mib,
    mem_available_mib: capacity.mem_available_mib,
    disk_free_mib: capacity.disk.free_mib,
    disk_reserve_mib: capacity.disk.reserve_mib,
    starts: capacity.starts,
    warm_pool,
    disks,
  };
}
