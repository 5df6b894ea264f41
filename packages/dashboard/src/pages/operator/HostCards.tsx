import type { HostRecord } from '../../../../contract/src/accounts/operator.ts';
import { Badge } from '../../ui/Badge.tsx';
import { formatBytes, formatMiB, formatNumber } from '../../ui/format.ts';
import { Meter } from '../../ui/Meter.tsx';
import { Card, Facts } from '../../ui/Page.tsx';
import { FleetTables } from './FleetTables.tsx';
import { sumRunners, type Measured } from './sum-runners.ts';

type Runner = Measured;

const ACCELERATORS: Readonly<Record<Runner['accelerator'], string>> = { kvm: 'KVM', tcg: 'TCG (emulated)' };
/** A part of a limit from which its gauge warns. */
const HIGH_SHARE = 0.8;

/** Health and capacity of the service. */
export function HostCards({ record }: { record: HostRecord }) {
  const { runners, controls } = record;
  const sum = sumRunners(runners);
  return (
    <>
      <Health record={record} sum={sum} />
      <Card title={runners.length > 1 ? 'Capacity of connected runners' : 'Capacity'}>
        {sum === undefined ? (
          <p class="fault">No runner answers, so the capacity is not known.</p>
        ) : (
          <Capacity runner={sum} />
        )}
      </Card>
      {(runners.length > 1 || controls.length > 1) && <FleetTables record={record} />}
    </>
  );
}

function Health({ record, sum }: { record: HostRecord; sum: Runner | undefined }) {
  const { serves, fault, version, region, runners, controls } = record;
  const connected = runners.filter(({ state }) => state === 'connected').length;
  return (
    <Card
      title="Health"
      actions={<Badge tone={serves ? 'good' : 'bad'}>{serves ? 'serves' : 'does not serve'}</Badge>}
    >
      {fault !== null && <p class="fault">{fault}</p>}
      <Facts
        facts={[
          ['Version', version],
          ['Region', region],
          ['Controls', formatNumber(controls.length)],
          [
            'Runners',
            connected === runners.length ? formatNumber(connected) : `${connected} of ${runners.length}`,
          ],
          ['Accelerator', sum === undefined ? 'unknown' : ACCELERATORS[sum.accelerator]],
          ['Confinement of VMs', sum?.confinement ?? 'unknown'],
          ['QEMU', sum?.versions.qemu ?? 'unknown'],
          ['Guest kernel', sum?.versions.kernel ?? 'unknown'],
        ]}
      />
    </Card>
  );
}

function Capacity({ runner }: { runner: Runner }) {
  const { vcpus, mem_mib: memory, starts, warm_pool: pool, disks } = runner;
  return (
    <>
      <div class="gauges">
        <Gauge label="Virtual CPUs of VMs" value={vcpus.promised} max={vcpus.limit} show={formatNumber} />
        <Gauge label="Memory of VMs" value={memory.promised} max={memory.limit} show={formatMiB} />
      </div>
      <Facts
        facts={[
          ['VMs', describeVms(runner)],
          ['Starts', `${formatNumber(starts.running)} running, ${formatNumber(starts.waiting)} waiting`],
          ['Memory available', formatMiB(runner.mem_available_mib)],
          [
            'Disk space',
            `${formatMiB(runner.disk_free_mib)} free, ${formatMiB(runner.disk_reserve_mib)} kept`,
          ],
          [
            'Warm VMs',
            pool.limit === 0 ? 'off' : `${formatNumber(pool.size)} of ${formatNumber(pool.limit)}`,
          ],
          ['Creates from warm VMs', `${formatNumber(pool.hits)} of ${formatNumber(pool.hits + pool.misses)}`],
          ['Persistent disks', describeDisks(disks)],
          ['Still to be stored', formatBytes(disks.dirty_bytes)],
        ]}
      />
    </>
  );
}

function describeVms({ sandboxes, paused }: Runner): string {
  const phases = [...Object.entries(sandboxes), ['paused', paused] as const];
  return listCounts(phases) || 'none';
}

function describeDisks({ attached, detaching, waiting }: Runner['disks']): string {
  const states = { attached, detaching, 'waiting for the object store': waiting };
  return listCounts(Object.entries(states)) || 'none';
}

/** Lists what there is, for example `3 running, 1 ending`. */
function listCounts(counts: readonly (readonly [name: string, count: number])[]): string {
  return counts
    .filter(([, count]) => count > 0)
    .map(([name, count]) => `${formatNumber(count)} ${name}`)
    .join(', ');
}

interface GaugeProps {
  label: string;
  value: number;
  max: number;
  show: (value: number) => string;
}

function Gauge({ label, value, max, show }: GaugeProps) {
  const share = max > 0 ? value / max : 0;
  return (
    <div class="gauge">
      <span class="soft">{label}</span>
      <span class="gauge-value">
        <b>{show(value)}</b> <span class="soft">of {show(max)}</span>
      </span>
      <Meter
        label={label}
        value={value}
        max={max}
        text={`${show(value)} of ${show(max)}`}
        share={share}
        tone={share >= HIGH_SHARE ? 'warn' : undefined}
      />
    </div>
  );
}
