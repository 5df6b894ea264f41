import { useSignal } from '@preact/signals';
import type { OperatedOrganization } from '../../../../contract/src/accounts/operator.ts';
import { listAccount } from '../../service/account-calls.ts';
import { useResource } from '../../service/resource.ts';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { formatCents, formatDay, formatNumber } from '../../ui/format.ts';
import { GuestText } from '../../ui/GuestText.tsx';
import { Menu } from '../../ui/Menu.tsx';
import { Card } from '../../ui/Page.tsx';
import { Loaded } from '../../ui/states.tsx';
import { Icon } from '../../ui/Icon.tsx';
import { GrantDialog } from './GrantDialog.tsx';
import { LimitsDialog } from './LimitsDialog.tsx';
import { countOwnLimits } from './limit-fields.ts';

interface Opened {
  kind: 'limits' | 'credit';
  organization: OperatedOrganization;
}

export function OperatedOrganizations() {
  const list = useResource(() => listAccount<OperatedOrganization>('/operator/organizations'), []);
  const opened = useSignal<Opened | undefined>(undefined);
  const close = (): void => {
    opened.value = undefined;
    list.reload();
  };
  const open = opened.value;
  return (
    <Card title="Organizations">
      <Loaded resource={list}>
        {(organizations) => (
          <DataTable
            label="Organizations"
            columns={listColumns((next) => (opened.value = next))}
            rows={organizations}
            rowId={({ id }) => id}
          />
        )}
      </Loaded>
      {open?.kind === 'limits' && <LimitsDialog organization={open.organization} onClose={close} />}
      {open?.kind === 'credit' && <GrantDialog organization={open.organization} onClose={close} />}
    </Card>
  );
}

function listColumns(onOpen: (opened: Opened) => void): Column<OperatedOrganization>[] {
  return [
    { id: 'name', label: 'Organization', width: '2fr', cell: ({ name }) => <GuestText text={name} /> },
    {
      id: 'since',
      label: 'Since',
      width: '8rem',
      isMinor: true,
      cell: ({ created_at: at }) => formatDay(at),
    },
    {
      id: 'sandboxes',
      label: 'Sandboxes',
      width: '6rem',
      align: 'end',
      cell: ({ sandboxes }) => formatNumber(sandboxes),
    },
    {
      id: 'cost',
      label: 'Cost',
      width: '7rem',
      align: 'end',
      cell: ({ cost_cents: cents }) => formatCents(cents),
    },
    {
      id: 'credit',
      label: 'Credit left',
      width: '7rem',
      align: 'end',
      isMinor: true,
      cell: ({ credit_left_cents: cents }) => (cents === null ? 'off' : formatCents(cents)),
    },
    {
      id: 'limits',
      label: 'Own limits',
      width: '7rem',
      isMinor: true,
      cell: ({ limits }) => countOwnLimits(limits),
    },
    {
      id: 'actions',
      label: 'Actions',
      width: '4rem',
      align: 'end',
      cell: (organization) => (
        <Menu
          label={`Actions for ${organization.name}`}
          button={<Icon name="more" />}
          items={[
            { label: 'Limits', icon: 'settings', onSelect: () => onOpen({ kind: 'limits', organization }) },
            { label: 'Credit', icon: 'plus', onSelect: () => onOpen({ kind: 'credit', organization }) },
          ]}
        />
      ),
    },
  ];
}
