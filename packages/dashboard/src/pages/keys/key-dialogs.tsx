import { useSignal } from '@preact/signals';
import type { ApiKeyRecord, CreatedApiKey } from '../../../../contract/src/accounts/team-keys.ts';
import { callAccount } from '../../service/account-calls.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { Button } from '../../ui/Button.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { Checkbox, SelectField, TextField } from '../../ui/Field.tsx';
import { formatMoment } from '../../ui/format.ts';
import { SecretValue } from '../../ui/SecretValue.tsx';
import { Ago } from '../../ui/Time.tsx';
import { showHidden } from '../../ui/visible-text.ts';
import { exportLine } from './key-state.ts';

const HOUR_S = 3600;
const DAY_S = 24 * HOUR_S;
const NEVER = '';
const LIVES: readonly (readonly [string, string])[] = [
  [NEVER, 'It does not expire'],
  [String(DAY_S), '1 day'],
  [String(7 * DAY_S), '7 days'],
  [String(30 * DAY_S), '30 days'],
  [String(90 * DAY_S), '90 days'],
  [String(365 * DAY_S), '1 year'],
];
const OVERLAPS: readonly (readonly [string, string])[] = [
  ['0', 'No: revoke it at once'],
  [String(HOUR_S), '1 hour'],
  [String(DAY_S), '1 day'],
  [String(7 * DAY_S), '7 days'],
  [String(30 * DAY_S), '30 days'],
];
const SCOPES = [
  ['full', 'Full: everything'],
  ['read', 'Read: lists, records, logs, usage and files'],
] as const;

interface ChangeProps {
  /** Path of the team. */
  path: string;
  onClose: () => void;
}

export function CreateKeyDialog({
  path,
  onCreated,
  onClose,
}: ChangeProps & { onCreated: (key: CreatedApiKey) => void }) {
  const name = useSignal('');
  const scope = useSignal('full');
  const isTeamOnly = useSignal(false);
  const life = useSignal(NEVER);
  const act = async (): Promise<void> => {
    const body = {
      name: name.value.trim(),
      scope: scope.value,
      team_only: isTeamOnly.value,
      ...(life.value === NEVER ? {} : { expires_in: Number(life.value) }),
    };
    onCreated(await callAccount<CreatedApiKey>('POST', `${path}/keys`, body));
  };
  return (
    <ActionDialog title="New API key" verb="Create the key" act={act} onClose={onClose}>
      <TextField
        label="Name"
        hint="Where it is used, for example ci."
        value={name.value}
        onValue={(value) => (name.value = value)}
        attributes={{ required: true, autofocus: true }}
      />
      <SelectField
        label="Access"
        value={scope.value}
        options={SCOPES}
        onValue={(value) => (scope.value = value)}
      />
      <Checkbox
        label="Only the sandboxes of this team"
        hint="With their snapshots, logs, history and costs. Without it the key sees all teams."
        isChecked={isTeamOnly.value}
        onChange={(value) => (isTeamOnly.value = value)}
      />
      <SelectField
        label="Expires after"
        value={life.value}
        options={LIVES}
        onValue={(value) => (life.value = value)}
      />
      <p class="hint">The access cannot be changed later. Make another key then.</p>
    </ActionDialog>
  );
}

export function RotateKeyDialog({
  apiKey,
  path,
  onCreated,
  onClose,
}: ChangeProps & { apiKey: ApiKeyRecord; onCreated: (key: CreatedApiKey) => void }) {
  const overlap = useSignal(String(HOUR_S));
  const life = useSignal(NEVER);
  const act = async (): Promise<void> => {
    const body = {
      overlap_seconds: Number(overlap.value),
      ...(life.value === NEVER ? {} : { expires_in: Number(life.value) }),
    };
    onCreated(await callAccount<CreatedApiKey>('POST', `${path}/keys/${apiKey.id}/rotate`, body));
  };
  return (
    <ActionDialog title={`Rotate ${showHidden(apiKey.name)}`} verb="Rotate" act={act} onClose={onClose}>
      <p>
        You get a new key with the same name and access, in place of <code>…{apiKey.last4}</code>.
      </p>
      <SelectField
        label="How long the old key still works"
        value={overlap.value}
        options={OVERLAPS}
        onValue={(value) => (overlap.value = value)}
      />
      <SelectField
        label="The new key expires after"
        value={life.value}
        options={LIVES}
        onValue={(value) => (life.value = value)}
      />
    </ActionDialog>
  );
}

export function RevokeKeyDialog({
  apiKey,
  path,
  onDone,
  onClose,
}: ChangeProps & { apiKey: ApiKeyRecord; onDone: () => void }) {
  const { id, name, last4, last_used_at: usedAt } = apiKey;
  return (
    <ActionDialog
      title={`Revoke ${showHidden(name)}?`}
      verb="Revoke the key"
      kind="danger"
      done={`The key ${showHidden(name)} is revoked.`}
      act={async () => {
        await callAccount('DELETE', `${path}/keys/${id}`);
        onDone();
      }}
      onClose={onClose}
    >
      <p>
        Programs with the key <code>…{last4}</code> fail on their next request.{' '}
        {usedAt === null ? (
          'It was never used.'
        ) : (
          <>
            It was last used <Ago at={usedAt} />.
          </>
        )}
      </p>
      <ul class="breaks">
        <li>Its open streams, shells, terminals and transfers end within 5 seconds.</li>
        <li>Tickets, preview links and links to files that were requested with it open nothing any more.</li>
        <li>Its sandboxes continue to run.</li>
      </ul>
      <p class="soft">This cannot be undone. To replace a key without an interruption, rotate it.</p>
    </ActionDialog>
  );
}

/** Shows a key. It cannot be shown again, so only its button closes the dialog. */
export function CreatedKeyDialog({ created, onClose }: { created: CreatedApiKey; onClose: () => void }) {
  const { key, name, expires_at: end } = created;
  const line = exportLine(key);
  return (
    <Dialog title={`The key ${showHidden(name)}`} size="large" onClose={onClose} isFixed>
      <SecretValue value={key} name="the key" isShown />
      <div class="stack-small">
        <span>For a shell:</span>
        <div class="secret">
          <code>{line}</code>
          <CopyButton text={line} label="Copy the line" />
        </div>
      </div>
      <p class="once">
        The key is shown only now, and the service does not keep it. Store it where your program reads it.
      </p>
      {end !== null && <p class="soft">It expires on {formatMoment(end)}.</p>}
      <div class="dialog-foot">
        <CopyButton text={key} label="Copy the key">
          Copy the key
        </CopyButton>
        <Button kind="primary" onClick={onClose}>
          Done
        </Button>
      </div>
    </Dialog>
  );
}
