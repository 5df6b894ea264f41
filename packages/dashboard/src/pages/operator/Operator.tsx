import { callAccount } from '../../service/account-calls.ts';
import { useResource } from '../../service/resource.ts';
import { isOperator } from '../../service/session.ts';
import type { HostRecord } from '../../../../contract/src/accounts/operator.ts';
import { Badge } from '../../ui/Badge.tsx';
import { Button } from '../../ui/Button.tsx';
import { formatBytes, formatMiB, formatNumber } from '../../ui/format.ts';
import { Card, Facts, Page } from '../../ui/Page.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { OperatedOrganizations } from './OperatedOrganizations.tsx';
import '../../styles/operator.css';

/** For owners of the first organization: the host, and all organizations. */
export function Operator() {
  if (isOperator.value) return <Operated />;
  return (
    <Page title="Operator">
      <Empty icon="lock" title="You do not operate this service">
        Owners of its first organization see the host and all organizations here.
      </Empty>
    </Page>
  );
}

function Operated() {
  const host = useResource(() => callAccount<HostRecord>('GET', '/operator/host'), []);
  return (
    <Page
      title="Operator"
      lead="The host of this service, and its organizations."
      actions={
        <Button icon="refresh" onClick={host.reload}>
          Measure again
        </Button>
      }
    >
      <Loaded resource={host}>{(record) => <Host record={record} />}</Loaded>
      <OperatedOrganizations />
    </Page>
  );
}

function Host({ record }: { record: HostRecord }) {
  const { serves, fault, version, region, runner } = record;
  return (
    <>
      <Card
        title="Health"
        actions={<Badge tone={serves ? 'good' : 'bad'}>{serves ? 'serves' : 'does not serve'}</Badge>}
      >
        {fault !== null && <p class="fault">{fault}</p>}
        <Facts
          facts={[
            ['Version', version],
            ['Region', region],
            ['Accelerator', runner === null ? 'unknown' : runner.accelerator.toUpperCase()],
            ['Confinement of VMs', runner?.confinement ?? 'unknown'],
            ['QEMU', runner?.versions.qemu ?? 'unknown'],
            ['Guest kernel', runner?.versions.kernel ?? 'unknown'],
          ]}
        />
      </Card>
      {runner === null ? (
        <p class="fault">The runner does not answer, so its capacity is not known.</p>
      ) : (
        <Capacity runner={runner} />
      )}
    </>
  );
}

function Capacity({ runner }: { runner: NonNullable<HostRecord['runner']> }) {
  const { vcpus, mem_mib: memory, sandboxes, warm_pool: pool, starts, disks } = runner;
  const running = Object.values(sandboxes).reduce((sum, count) => sum + count, 0);
  return (
    <Card title="Capacity">
      <div class="gauges">
        <Gauge label="Virtual CPUs promised" value={vcpus.promised} max={vcpus.limit} show={formatNumber} />
        <Gauge label="Memory promised" value={memory.promised} max={memory.limit} show={formatMiB} />
        <Gauge label="Warm VMs" value={pool.size} max={pool.limit} show={formatNumber} />
      </div>
      <Facts
        facts={[
          [
            'VMs',
            `${formatNumber(running)}${runner.paused > 0 ? `, ${formatNumber(runner.paused)} paused` : ''}`,
          ],
          ['Starts', `${formatNumber(starts.running)} running, ${formatNumber(starts.waiting)} waiting`],
          ['Memory available', formatMiB(runner.mem_available_mib)],
          [
            'Disk space',
            `${formatMiB(runner.disk_free_mib)} free, ${formatMiB(runner.disk_reserve_mib)} kept`,
          ],
          ['Creates from warm VMs', `${formatNumber(pool.hits)} of ${formatNumber(pool.hits + pool.misses)}`],
          [
            'Persistent disks',
            `${formatNumber(disks.attached)} attached, ${formatNumber(disks.detaching)} detaching`,
          ],
          ['Still to be stored', formatBytes(disks.dirty_bytes)],
        ]}
      />
    </Card>
  );
}

interface GaugeProps {
  label: string;
  value: number;
  max: number;
  show: (value: number) => string;
}

function Gauge({ label, value, max, show }: GaugeProps) {
  return (
    <div class="gauge">
      <div class="row">
        <span>{label}</span>
        <span class="gap" />
        <b class="number">
          {show(value)} <span class="soft">of {show(max)}</span>
        </b>
      </div>
      <meter aria-label={label} min={0} max={Math.max(1, max)} high={0.8 * max} value={value} />
    </div>
  );
}
