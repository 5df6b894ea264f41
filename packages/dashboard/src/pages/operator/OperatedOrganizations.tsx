import { useSignal } from '@preact/signals';
import type { OperatedOrganization } from '../../../../contract/src/accounts/operator.ts';
import type { Resource } from '../../service/resource.ts';
import { Badge } from '../../ui/Badge.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { formatCents, formatDay, formatNumber } from '../../ui/format.ts';
import { GuestText } from '../../ui/GuestText.tsx';
import { Icon } from '../../ui/Icon.tsx';
import { Menu } from '../../ui/Menu.tsx';
import { SearchField } from '../../ui/SearchField.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { showHidden } from '../../ui/visible-text.ts';
import { GrantDialog } from './GrantDialog.tsx';
import { LimitsDialog } from './LimitsDialog.tsx';
import { describeLimits } from './limit-fields.ts';

interface Opened {
  kind: 'limits' | 'credit';
  organization: OperatedOrganization;
}

export function OperatedOrganizations({ list }: { list: Resource<OperatedOrganization[]> }) {
  const opened = useSignal<Opened | undefined>(undefined);
  const close = (): void => {
    opened.value = undefined;
    list.reload();
  };
  const open = opened.value;
  return (
    <section class="operated">
      <Loaded resource={list}>
        {(organizations) => <Listed organizations={organizations} onOpen={(next) => (opened.value = next)} />}
      </Loaded>
      {open?.kind === 'limits' && <LimitsDialog organization={open.organization} onClose={close} />}
      {open?.kind === 'credit' && <GrantDialog organization={open.organization} onClose={close} />}
    </section>
  );
}

interface ListedProps {
  organizations: readonly OperatedOrganization[];
  onOpen: (opened: Opened) => void;
}

function Listed({ organizations: all, onOpen }: ListedProps) {
  const search = useSignal('');
  const words = search.value.trim().toLowerCase();
  const shown = all.filter(({ id, name }) => name.toLowerCase().includes(words) || id.includes(words));
  return (
    <>
      <div class="filters">
        <h2>Organizations</h2>
        <span class="soft" role="status">
          {shown.length === all.length ? '' : `${formatNumber(shown.length)} of `}
          {formatNumber(all.length)}
        </span>
        <span class="gap" />
        <SearchField
          label="Search organizations"
          placeholder="Search by name or id"
          value={search.value}
          onValue={(value) => (search.value = value)}
        />
      </div>
      {shown.length === 0 ? (
        <Empty icon="search" title="No organization matches">
          Change the search.
        </Empty>
      ) : (
        <DataTable label="Organizations" columns={listColumns(onOpen)} rows={shown} rowId={({ id }) => id} />
      )}
    </>
  );
}

function listColumns(onOpen: (opened: Opened) => void): Column<OperatedOrganization>[] {
  return [
    {
      id: 'name',
      label: 'Organization',
      width: '1.4fr',
      cell: ({ id, name }) => (
        <b title={id}>
          <GuestText text={name} />
        </b>
      ),
    },
    {
      id: 'sandboxes',
      label: 'Sandboxes',
      width: '6rem',
      align: 'end',
      cell: ({ sandboxes }) => <span class="number">{formatNumber(sandboxes)}</span>,
    },
    {
      id: 'cost',
      label: 'Cost',
      width: '7rem',
      align: 'end',
      cell: ({ cost_cents: cents }) => <span class="number">{formatCents(cents)}</span>,
    },
    {
      id: 'credit',
      label: 'Credit left',
      width: '8rem',
      align: 'end',
      cell: ({ credit_left_cents: cents }) => <CreditLeft cents={cents} />,
    },
    {
      id: 'limits',
      label: 'Own limits',
      width: '1.2fr',
      isMinor: true,
      cell: ({ limits }) => <OwnLimits text={describeLimits(limits)} />,
    },
    {
      id: 'since',
      label: 'Since',
      width: '7.5rem',
      isMinor: true,
      cell: ({ created_at: at }) => formatDay(at),
    },
    {
      id: 'actions',
      label: 'Actions',
      width: '2.5rem',
      align: 'end',
      isAction: true,
      cell: (organization) => <Actions organization={organization} onOpen={onOpen} />,
    },
  ];
}

function CreditLeft({ cents }: { cents: number | null }) {
  if (cents === null) return <span class="soft">off</span>;
  if (cents <= 0) return <Badge tone="bad">{formatCents(cents)}</Badge>;
  return <span class="number">{formatCents(cents)}</span>;
}

function OwnLimits({ text }: { text: string | undefined }) {
  return text === undefined ? <span class="soft">none</span> : <span title={text}>{text}</span>;
}

interface ActionsProps {
  organization: OperatedOrganization;
  onOpen: (opened: Opened) => void;
}

function Actions({ organization, onOpen }: ActionsProps) {
  return (
    <Menu
      label={`Actions for ${showHidden(organization.name)}`}
      button={<Icon name="more" />}
      items={[
        {
          label: 'Change the limits',
          icon: 'settings',
          onSelect: () => onOpen({ kind: 'limits', organization }),
        },
        {
          label: 'Grant or take back credit',
          icon: 'plus',
          onSelect: () => onOpen({ kind: 'credit', organization }),
        },
      ]}
    />
  );
}
