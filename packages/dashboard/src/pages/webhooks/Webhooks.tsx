import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import type { CreatedWebhook, WebhookInfo } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import { client } from '../../service/session.ts';
import '../../styles/resources.css';
import { Badge } from '../../ui/Badge.tsx';
import { Button } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { Page } from '../../ui/Page.tsx';
import { Empty, Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { ShowSecret } from './ShowSecret.tsx';
import { LIST_WEBHOOKS } from './webhook-calls.ts';
import { describeState, describeTypes } from './webhook-words.ts';
import { CreateWebhook } from './WebhookForm.tsx';

const COLUMNS: readonly Column<WebhookInfo>[] = [
  { id: 'url', label: 'URL', width: '2.2fr', cell: ({ url }) => <span class="mono">{url}</span> },
  { id: 'state', label: 'State', width: '7.5rem', cell: (webhook) => <WebhookState webhook={webhook} /> },
  {
    id: 'types',
    label: 'Events',
    width: '1.4fr',
    cell: ({ types }) => <span title={types.join(', ')}>{describeTypes(types)}</span>,
  },
  {
    id: 'description',
    label: 'Description',
    width: '1.4fr',
    isMinor: true,
    cell: ({ description }) => (description === '' ? <span class="soft">–</span> : description),
  },
  {
    id: 'age',
    label: 'Created',
    width: '7rem',
    align: 'end',
    isMinor: true,
    cell: ({ createdAt }) => <Ago at={createdAt} />,
  },
];

/** `/webhooks` */
export function Webhooks() {
  const current = client.value;
  const { route } = useLocation();
  const isOpen = useSignal(false);
  const created = useSignal<CreatedWebhook | undefined>(undefined);
  const resource = useResource(
    async (signal) => (await current?.webhooks.list({ signal })) ?? [],
    [current],
    { concerns: ({ type }) => type === 'webhook.disabled' },
  );
  const leave = (): void => {
    const id = created.value?.id ?? '';
    created.value = undefined;
    route(`/webhooks/${encodeURIComponent(id)}`);
  };
  return (
    <Page
      title="Webhooks"
      lead="The service sends events of your organization to servers of yours, signed and with retries."
      actions={
        <>
          <CopyAsCode {...LIST_WEBHOOKS} />
          <Button kind="primary" icon="plus" onClick={() => (isOpen.value = true)}>
            New webhook
          </Button>
        </>
      }
    >
      <Loaded resource={resource} rows={3}>
        {(webhooks) => <WebhookTable webhooks={webhooks} onCreate={() => (isOpen.value = true)} />}
      </Loaded>
      {isOpen.value && (
        <CreateWebhook
          onClose={() => (isOpen.value = false)}
          onCreated={(webhook) => (created.value = webhook)}
        />
      )}
      {created.value !== undefined && <ShowSecret secret={created.value.secret} onClose={leave} />}
    </Page>
  );
}

export function WebhookState({ webhook }: { webhook: WebhookInfo }) {
  const { tone, text } = describeState(webhook);
  return <Badge tone={tone}>{text}</Badge>;
}

function WebhookTable({ webhooks, onCreate }: { webhooks: readonly WebhookInfo[]; onCreate: () => void }) {
  if (webhooks.length === 0)
    return (
      <Empty
        icon="hook"
        title="There is no webhook yet"
        action={
          <Button kind="primary" icon="plus" onClick={onCreate}>
            Create the first one
          </Button>
        }
      >
        A webhook is a URL that gets a message when a sandbox fails, a build ends, or anything else happens.
      </Empty>
    );
  return (
    <DataTable
      label="Webhooks"
      columns={COLUMNS}
      rows={webhooks}
      rowId={({ id }) => id}
      href={({ id }) => `/webhooks/${encodeURIComponent(id)}`}
    />
  );
}
