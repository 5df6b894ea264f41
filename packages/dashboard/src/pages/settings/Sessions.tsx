import { useSignal } from '@preact/signals';
import type { SessionRecord } from '../../../../contract/src/accounts/people.ts';
import { callAccount } from '../../service/account-calls.ts';
import type { Resource } from '../../service/resource.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Badge } from '../../ui/Badge.tsx';
import { Button } from '../../ui/Button.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { GuestText } from '../../ui/GuestText.tsx';
import { Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { describeClient } from './describe-client.ts';

/** Where the person is signed in. */
export function Sessions({ sessions }: { sessions: Resource<SessionRecord[]> }) {
  const ended = useSignal<SessionRecord | undefined>(undefined);
  return (
    <section class="section">
      <h2>Sessions</h2>
      <p class="soft">Where you are signed in. A session ends two weeks after its last use.</p>
      <Loaded resource={sessions} rows={2}>
        {(list) => (
          <DataTable
            label="Sessions"
            columns={listColumns((session) => (ended.value = session))}
            rows={list}
            rowId={({ id }) => id}
          />
        )}
      </Loaded>
      {ended.value !== undefined && (
        <EndDialog session={ended.value} onDone={sessions.reload} onClose={() => (ended.value = undefined)} />
      )}
    </section>
  );
}

function listColumns(end: (session: SessionRecord) => void): readonly Column<SessionRecord>[] {
  return [
    {
      id: 'client',
      label: 'Client',
      width: '2fr',
      cell: ({ user_agent: agent, is_current: isCurrent }) => (
        <span class="person">
          <b title={agent}>
            <GuestText text={describeClient(agent)} />
          </b>
          {isCurrent && <Badge tone="good">this session</Badge>}
        </span>
      ),
    },
    {
      id: 'address',
      label: 'Address',
      width: '1.2fr',
      cell: ({ client_address: address }) => <span class="mono">{address}</span>,
    },
    {
      id: 'started',
      label: 'Signed in',
      width: '7rem',
      isMinor: true,
      align: 'end',
      cell: ({ created_at: at }) => <Ago at={at} />,
    },
    {
      id: 'used',
      label: 'Last used',
      width: '7rem',
      isMinor: true,
      align: 'end',
      cell: ({ last_used_at: at }) => <Ago at={at} />,
    },
    {
      id: 'actions',
      label: 'Actions',
      width: '5rem',
      align: 'end',
      isAction: true,
      cell: (session) =>
        !session.is_current && (
          <Button kind="quiet" onClick={() => end(session)}>
            End
          </Button>
        ),
    },
  ];
}

function EndDialog({
  session,
  onDone,
  onClose,
}: {
  session: SessionRecord;
  onDone: () => void;
  onClose: () => void;
}) {
  const { id, client_address: address, user_agent: agent } = session;
  return (
    <ActionDialog
      title="End the session?"
      verb="End the session"
      kind="danger"
      done="The session has ended."
      act={async () => {
        await callAccount('DELETE', `/sessions/${id}`);
        onDone();
      }}
      onClose={onClose}
    >
      <p>
        <GuestText text={describeClient(agent)} /> at <span class="mono">{address}</span> is signed out. If
        you do not know it, change your password, too.
      </p>
    </ActionDialog>
  );
}
