import type { HostRecord } from '../../../../contract/src/accounts/operator.ts';
import { Badge, type Tone } from '../../ui/Badge.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { formatMiB, formatNumber } from '../../ui/format.ts';
import { Ago } from '../../ui/Time.tsx';

type Runner = HostRecord['runners'][number];
type Control = HostRecord['controls'][number];

const TONES: Readonly<Record<Runner['state'], Tone>> = { connected: 'good', away: 'bad', unowned: 'bad' };

/** The runners and the controls, where there are several. */
export function FleetTables({ record: { runners, controls } }: { record: HostRecord }) {
  return (
    <>
      <section class="fleet">
        <h2>Runners</h2>
        <DataTable label="Runners" columns={RUNNERS} rows={runners} rowId={({ id }) => id} />
      </section>
      <section class="fleet">
        <h2>Controls</h2>
        <DataTable label="Controls" columns={CONTROLS} rows={controls} rowId={({ id }) => id} />
      </section>
    </>
  );
}

const RUNNERS: readonly Column<Runner>[] = [
  {
    id: 'id',
    label: 'Runner',
    width: '1.2fr',
    cell: ({ id, address }) => <Name id={id} address={address} />,
  },
  { id: 'state', label: 'State', width: '1fr', cell: (runner) => <State runner={runner} /> },
  {
    id: 'vms',
    label: 'VMs',
    width: '5rem',
    align: 'end',
    cell: ({ measured }) => <span class="number">{countVms(measured)}</span>,
  },
  {
    id: 'memory',
    label: 'Memory of VMs',
    width: '1.3fr',
    align: 'end',
    cell: ({ measured }) => <span class="number">{describeMemory(measured)}</span>,
  },
  {
    id: 'control',
    label: 'Control',
    width: '1fr',
    isMinor: true,
    cell: ({ control }) => (control === null ? <span class="soft">none</span> : <Name id={control} />),
  },
  {
    id: 'heard',
    label: 'Heard',
    width: '6rem',
    isMinor: true,
    cell: ({ heard_seconds_ago: seconds }) => <Heard seconds={seconds} />,
  },
  {
    id: 'versions',
    label: 'QEMU, kernel',
    width: '1fr',
    isMinor: true,
    cell: ({ measured }) =>
      measured === null ? (
        <span class="soft">unknown</span>
      ) : (
        `${measured.versions.qemu}, ${measured.versions.kernel}`
      ),
  },
];

const CONTROLS: readonly Column<Control>[] = [
  {
    id: 'id',
    label: 'Control',
    width: '1.2fr',
    cell: ({ id, address }) => <Name id={id} address={address} />,
  },
  { id: 'role', label: 'State', width: '1.6fr', cell: (control) => <Role control={control} /> },
  {
    id: 'runners',
    label: 'Runners',
    width: '6rem',
    align: 'end',
    cell: ({ runners }) => <span class="number">{formatNumber(runners)}</span>,
  },
  { id: 'version', label: 'Version', width: '1fr', isMinor: true, cell: ({ version }) => version },
  {
    id: 'started',
    label: 'Started',
    width: '1fr',
    isMinor: true,
    cell: ({ started_at: at }) => <Ago at={at} />,
  },
];

/** Ids are long; their ends tell them apart. */
function Name({ id, address }: { id: string; address?: string | null }) {
  const [kind = ''] = /^(?:runner|ctl)/u.exec(id) ?? [];
  const short = `${kind}…${id.slice(-8)}`;
  return <span title={[id, address].filter(Boolean).join(', ')}>{short}</span>;
}

function State({ runner: { state, cordoned, draining } }: { runner: Runner }) {
  if (state !== 'connected' || !(draining || cordoned)) return <Badge tone={TONES[state]}>{state}</Badge>;
  return <Badge tone="warn">{draining ? 'draining' : 'cordoned'}</Badge>;
}

function Heard({ seconds }: { seconds: number | null }) {
  if (seconds === null) return <span class="soft">never</span>;
  return <Ago at={new Date(Date.now() - seconds * 1000).toISOString()} />;
}

function Role({ control: { leading, answers } }: { control: Control }) {
  return (
    <span class="states">
      <Badge tone="good">alive</Badge>
      {leading && <Badge>leads</Badge>}
      {answers && <Badge>answers here</Badge>}
    </span>
  );
}

function countVms(measured: Runner['measured']): string {
  if (measured === null) return '?';
  return formatNumber(Object.values(measured.sandboxes).reduce((sum, count) => sum + count, 0));
}

function describeMemory(measured: Runner['measured']): string {
  if (measured === null) return '?';
  const { promised, limit } = measured.mem_mib;
  return `${formatMiB(promised)} of ${formatMiB(limit)}`;
}
