import { useSignal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import type { GuestReport, MetricsNow, SandboxInfo, SandboxMetrics } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import { Button, ButtonLink } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { formatBytes, formatNumber } from '../../ui/format.ts';
import { Card, Facts } from '../../ui/Page.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { Chart } from './metrics/Chart.tsx';
import { CHARTS, toChartData, type ChartSpec } from './metrics/chart-data.ts';
import { useColors } from '../../ui/use-colors.ts';
import { codeOf } from './sandbox-code.ts';
import type { TabProps } from './tab-props.ts';
import { Segments } from '../../ui/Segments.tsx';
import '../../styles/metrics.css';

const REFRESH_MS = 10_000;
const HOUR_SECONDS = 3600;
const SPANS: readonly (readonly [seconds: number, label: string])[] = [
  [300, '5 minutes'],
  [900, '15 minutes'],
  [HOUR_SECONDS, '1 hour'],
];
const PERCENT = new Intl.NumberFormat(undefined, { style: 'percent', maximumFractionDigits: 1 });

export function MetricsTab(props: TabProps) {
  const { record } = props;
  if (record.status === 'creating')
    return (
      <Empty icon="clock" title="The sandbox starts">
        Measurements begin when it runs.
      </Empty>
    );
  if (record.endedAt !== null)
    return (
      <Empty
        icon="chart"
        title="The sandbox has ended"
        action={<ButtonLink href="/usage">See the usage</ButtonLink>}
      >
        Measurements are kept while a sandbox exists. What it used in total is in the usage.
      </Empty>
    );
  return <Metrics {...props} />;
}

function Metrics({ sandbox, record }: TabProps) {
  const resource = useResource((signal) => sandbox.metrics({ signal }), [record.id, record.status]);
  useRefreshInView(resource.reload);
  const chosen = useSignal<number | undefined>(undefined);
  const span = chosen.value ?? spanOf(resource.value?.series[0]?.at);
  return (
    <div class="stack">
      <div class="filters">
        <Segments
          label="Time that is shown"
          options={SPANS}
          value={span}
          onValue={(seconds) => (chosen.value = seconds)}
        />
        <span class="soft">Measured on the host, every 10 seconds</span>
        <span class="gap" />
        <CopyAsCode
          {...codeOf({
            id: record.id,
            method: 'GET',
            path: '/metrics',
            typescript: 'console.log((await sandbox?.metrics())?.now);',
            python: 'print(sandbox.metrics().now)',
          })}
        />
        <Button icon="refresh" kind="quiet" onClick={resource.reload}>
          Refresh
        </Button>
      </div>
      <Loaded resource={resource} rows={8}>
        {(metrics) => (
          <>
            <Now now={metrics.now} status={record.status} />
            <Charts metrics={metrics} record={record} spanSeconds={span} />
          </>
        )}
      </Loaded>
    </div>
  );
}

/** A young sandbox has few measurements, so less time is shown. */
function spanOf(firstAt: string | undefined): number {
  const ageMs = firstAt === undefined ? 0 : Date.now() - Date.parse(firstAt);
  return SPANS.find(([seconds]) => ageMs < seconds * 1000)?.[0] ?? HOUR_SECONDS;
}

/**
 * No event reports a measurement, so this part reads them again, as often as there are new ones, while it is in view. A
 * reading is no use of the sandbox.
 */
function useRefreshInView(reload: () => void): void {
  useEffect(() => {
    const refresh = (): void => {
      if (document.visibilityState === 'visible') reload();
    };
    const timer = setInterval(refresh, REFRESH_MS);
    document.addEventListener('visibilitychange', refresh);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', refresh);
    };
  }, [reload]);
}

function Charts({
  metrics,
  record,
  spanSeconds,
}: {
  metrics: SandboxMetrics;
  record: SandboxInfo;
  spanSeconds: number;
}) {
  const colors = useColors();
  const { series, stepSeconds } = metrics;
  const all = useMemo(
    () => CHARTS.map((spec) => ({ spec, data: toChartData(spec.lines, series, stepSeconds) })),
    [metrics],
  );
  const endSeconds = useMemo(() => Date.now() / 1000, [metrics]);
  if (series.length === 0)
    return (
      <Empty icon="chart" title="No measurements yet">
        The first one appears after about ten seconds.
      </Empty>
    );
  return (
    <div class="charts">
      {all.map(({ spec, data }) => (
        <Chart
          key={spec.id}
          spec={spec}
          data={data}
          colors={colors}
          spanSeconds={spanSeconds}
          endSeconds={endSeconds}
          leastTop={leastTopOf(spec, record)}
        />
      ))}
    </div>
  );
}

/** Shares and memory are shown against all that there is, traffic against a little. */
function leastTopOf({ unit }: ChartSpec, { memMiB }: SandboxInfo): number {
  if (unit === 'share') return 1;
  return unit === 'bytes' ? memMiB * 2 ** 20 : 1024;
}

function Now({ now, status }: { now: MetricsNow | null; status: string }) {
  if (now === null)
    return (
      <Card title="Now">
        <p class="soft">
          {status === 'hibernated'
            ? 'The sandbox is hibernated and uses no CPU, memory or network.'
            : 'The sandbox does not run at the moment.'}
        </p>
      </Card>
    );
  return (
    <Card title="Now">
      <div class="metrics-now stack">
        <Facts facts={measured(now)} />
        {now.guestReported !== null && <Reported report={now.guestReported} />}
      </div>
    </Card>
  );
}

function measured({ cpu, memory, disk, workspace, network }: MetricsNow) {
  const facts: (readonly [string, string])[] = [
    ['CPU', cpu.utilization === null ? 'not measured yet' : PERCENT.format(cpu.utilization)],
    ['CPU time', `${formatNumber(Math.round(cpu.usedSeconds * 10) / 10)} s`],
    ['Memory', formatBytes(memory.sizeBytes)],
    // With that of the virtual machine itself, so it can be more than the sandbox has.
    ['Memory on the host', formatBytes(memory.hostBytes)],
    ['Scratch disk', `${formatBytes(disk.usedBytes)} of ${formatBytes(disk.sizeBytes)}`],
    ['Read from disks', formatBytes(disk.readBytes)],
    ['Written to disks', formatBytes(disk.writtenBytes)],
  ];
  if (workspace !== null)
    facts.push([
      'Not yet stored of the disk',
      `${formatBytes(workspace.dirtyBytes)} of ${formatBytes(workspace.sizeBytes)}`,
    ]);
  if (network !== null)
    facts.push(['Received', formatBytes(network.receivedBytes)], ['Sent', formatBytes(network.sentBytes)]);
  return facts;
}

/** Root in the sandbox can make it report anything. */
function Reported({ report }: { report: GuestReport }) {
  const { memoryAvailableBytes, memoryTotalBytes, load1, processes } = report;
  return (
    <>
      <h3 class="metrics-reported">Reported by the sandbox itself</h3>
      <Facts
        facts={[
          ['Free memory', `${formatBytes(memoryAvailableBytes)} of ${formatBytes(memoryTotalBytes)}`],
          ['Load', formatNumber(load1)],
          ['Processes', formatNumber(processes)],
        ]}
      />
    </>
  );
}
