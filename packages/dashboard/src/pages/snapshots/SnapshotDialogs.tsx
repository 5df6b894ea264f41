/** Dialogs for one snapshot, for the list of snapshots and for the family of a sandbox. */
import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import { useRef } from 'preact/hooks';
import type { Coppice, RestoreOptions, SnapshotChanges, SnapshotInfo } from '../../../../sdk/src/index.ts';
import { ActionDialog } from '../../ui/ActionDialog.tsx';
import { SelectField, TextArea, TextField } from '../../ui/Field.tsx';
import { formatBytes, formatMoment } from '../../ui/format.ts';
import { toLiteral, toPython, toPythonArguments } from '../../ui/snippets.ts';
import { parsePairs } from './parse-pairs.ts';
import { showHidden } from '../../ui/visible-text.ts';
import { fromFieldTime, toFieldTime } from './snapshot-times.ts';

interface SnapshotDialogProps {
  client: Coppice;
  snapshot: SnapshotInfo;
  onClose: () => void;
}

/** Returns how people call a snapshot. */
export function titleOf({ id, name }: Pick<SnapshotInfo, 'id' | 'name'>): string {
  return showHidden(name ?? id);
}

/** Changes the name and the expiry of a snapshot. */
export function EditSnapshot({
  client,
  snapshot,
  onClose,
  onDone,
}: SnapshotDialogProps & { onDone?: () => void }) {
  const name = useSignal(snapshot.name ?? '');
  const expiry = useSignal(toFieldTime(snapshot.expiresAt));
  const changes: SnapshotChanges = {
    name: name.value === '' ? null : name.value,
    // A field has whole minutes: an expiry that was not changed stays as it is.
    ...(expiry.value === toFieldTime(snapshot.expiresAt) ? {} : { expiresAt: fromFieldTime(expiry.value) }),
  };
  const { id } = snapshot;
  return (
    <ActionDialog
      title={`Change ${titleOf(snapshot)}`}
      verb="Save"
      done="The snapshot has been changed."
      act={async () => {
        await client.snapshots.update(id, changes);
        onDone?.();
      }}
      onClose={onClose}
      code={{
        method: 'PATCH',
        path: `/v1/snapshots/${id}`,
        body: { name: changes.name, expires_at: changes.expiresAt },
        typescript: `await client.snapshots.update('${id}', ${toLiteral(changes)});`,
        python: `client.snapshots.update(${toPython(id)}, ${toPythonArguments({ ...changes })})`,
      }}
    >
      <TextField
        label="Name"
        isOptional
        hint="For people. Several snapshots may have the same name."
        value={name.value}
        onValue={(value) => (name.value = value)}
        attributes={{ maxLength: 128 }}
      />
      <TextField
        label="Expires"
        isOptional
        hint="When the service deletes it, in your time zone. Empty: never."
        value={expiry.value}
        onValue={(value) => (expiry.value = value)}
        attributes={{ type: 'datetime-local' }}
      />
    </ActionDialog>
  );
}

export function DeleteSnapshot({
  client,
  snapshot,
  onClose,
  onDone,
}: SnapshotDialogProps & { onDone?: () => void }) {
  const { id, sizeBytes, createdAt, runId } = snapshot;
  return (
    <ActionDialog
      title={`Delete ${titleOf(snapshot)}`}
      verb="Delete"
      kind="danger"
      done="The snapshot has been deleted."
      act={async () => {
        await client.snapshots.delete(id);
        onDone?.();
      }}
      onClose={onClose}
      code={{
        method: 'DELETE',
        path: `/v1/snapshots/${id}`,
        typescript: `await client.snapshots.delete('${id}');`,
        python: `client.snapshots.delete(${toPython(id)})`,
      }}
    >
      <p>
        The snapshot of <span class="mono">{runId}</span> from {formatMoment(createdAt)},{' '}
        {formatBytes(sizeBytes)}, cannot be recovered. Sandboxes that were restored from it keep running.
      </p>
    </ActionDialog>
  );
}

const TIMEOUTS = [
  ['', 'As when it was saved'],
  ['300', '5 minutes'],
  ['3600', '1 hour'],
  ['86400', '1 day'],
  ['0', 'Never'],
] as const;

const LONGEST = [
  ['', 'As when it was saved'],
  ['3600', '1 hour'],
  ['86400', '1 day'],
  ['604800', '1 week'],
  ['none', 'No limit'],
] as const;

const WHEN_IDLE = [
  ['', 'As when it was saved'],
  ['hibernate', 'Hibernate it'],
  ['destroy', 'Destroy it'],
] as const;

interface RestoreForm {
  name: string;
  labels: string;
  timeout: string;
  whenIdle: string;
  expiry: string;
  longest: string;
  env: string;
  cwd: string;
  disk: string;
}

const EMPTY_FORM: RestoreForm = {
  name: '',
  labels: '',
  timeout: '',
  whenIdle: '',
  expiry: '',
  longest: '',
  env: '',
  cwd: '',
  disk: '',
};

/** Creates a sandbox from a snapshot, and opens its page. */
export function RestoreSnapshot({ client, snapshot, onClose }: SnapshotDialogProps) {
  const { route } = useLocation();
  const made = useRef('');
  const form = useSignal(EMPTY_FORM);
  const faults = faultsOf(form.value);
  const isWrong = faults.labels !== undefined || faults.env !== undefined;
  const options = isWrong ? {} : toOptions(form.value);
  const set = (part: Partial<RestoreForm>): void => void (form.value = { ...form.value, ...part });
  return (
    <ActionDialog
      title={`Restore ${titleOf(snapshot)}`}
      verb="Restore"
      done="The sandbox has been restored."
      isDisabled={isWrong}
      act={async () => {
        ({ id: made.current } = await client.sandboxes.restore(snapshot.id, options));
      }}
      onDone={() => route(`/sandboxes/${made.current}`)}
      onClose={onClose}
      code={restoreCode(snapshot.id, options)}
    >
      <p class="soft">
        The new sandbox continues from the snapshot, with its memory, processes and files. It has no name and
        no credentials unless you set them.
      </p>
      <RestoreFields form={form.value} set={set} faults={faults} disk={snapshot.disk?.name} />
    </ActionDialog>
  );
}

interface FieldsProps {
  form: RestoreForm;
  set: (part: Partial<RestoreForm>) => void;
  faults: Faults;
  disk: string | undefined;
}

function RestoreFields({ form, set, faults, disk }: FieldsProps) {
  return (
    <>
      <TextField
        label="Name"
        isOptional
        value={form.name}
        onValue={(name) => set({ name })}
        attributes={{ maxLength: 64 }}
      />
      <TextArea
        label="Labels"
        isOptional
        rows={2}
        placeholder="job=nightly"
        hint="One on each line. Empty: those that the sandbox had when it was saved."
        error={faults.labels}
        value={form.labels}
        onValue={(labels) => set({ labels })}
      />
      <div class="columns">
        <SelectField
          label="Idle timeout"
          options={TIMEOUTS}
          value={form.timeout}
          onValue={(timeout) => set({ timeout })}
        />
        <SelectField
          label="When idle"
          options={WHEN_IDLE}
          value={form.whenIdle}
          onValue={(whenIdle) => set({ whenIdle })}
        />
      </div>
      <details class="more">
        <summary>More settings</summary>
        <MoreFields form={form} set={set} faults={faults} />
      </details>
      {disk !== undefined && (
        <TextField
          label="Name of the new disk"
          isOptional
          hint={`The disk is forked from ${disk} as it was. Empty: that name with a number.`}
          value={form.disk}
          onValue={(value) => set({ disk: value })}
        />
      )}
    </>
  );
}

function MoreFields({ form, set, faults }: Omit<FieldsProps, 'disk'>) {
  return (
    <div class="stack">
      <TextField
        label="Ends at"
        isOptional
        hint="When it is destroyed even if it is in use, in your time zone."
        value={form.expiry}
        onValue={(expiry) => set({ expiry })}
        attributes={{ type: 'datetime-local' }}
      />
      <SelectField
        label="Longest life"
        options={LONGEST}
        value={form.longest}
        onValue={(longest) => set({ longest })}
      />
      <TextArea
        label="Environment variables"
        isOptional
        rows={3}
        placeholder="NAME=value"
        hint="One on each line. They replace those that the sandbox had when it was saved."
        error={faults.env}
        value={form.env}
        onValue={(env) => set({ env })}
      />
      <TextField
        label="Working directory"
        isOptional
        hint="An absolute path, where new processes start."
        value={form.cwd}
        onValue={(cwd) => set({ cwd })}
      />
    </div>
  );
}

interface Faults {
  labels: string | undefined;
  env: string | undefined;
}

function faultsOf({ labels, env }: RestoreForm): Faults {
  return { labels: faultOf(labels), env: faultOf(env) };
}

function faultOf(text: string): string | undefined {
  try {
    parsePairs(text);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function toOptions(form: RestoreForm): RestoreOptions {
  const { name, timeout, whenIdle, longest, cwd, disk } = form;
  const expiresAt = fromFieldTime(form.expiry);
  const labels = parsePairs(form.labels);
  const env = parsePairs(form.env);
  return {
    ...(name === '' ? {} : { name }),
    ...(isEmpty(labels) ? {} : { labels }),
    ...(timeout === '' ? {} : { timeout: Number(timeout) }),
    ...(whenIdle === '' ? {} : { autoHibernate: whenIdle === 'hibernate' }),
    ...(longest === '' ? {} : { maxLifetime: longest === 'none' ? null : Number(longest) }),
    ...(expiresAt === null ? {} : { expiresAt }),
    ...(isEmpty(env) ? {} : { env }),
    ...(cwd === '' ? {} : { cwd }),
    ...(disk === '' ? {} : { disk }),
  };
}

function isEmpty(pairs: Readonly<Record<string, string>>): boolean {
  return Object.keys(pairs).length === 0;
}

function restoreCode(id: string, options: RestoreOptions) {
  const { autoHibernate, expiresAt, maxLifetime, ...rest } = options;
  const isPlain = Object.keys(options).length === 0;
  const arguments_ = toPythonArguments({ ...options });
  return {
    method: 'POST',
    path: '/v1/runs/restore',
    body: {
      snapshot_id: id,
      ...rest,
      auto_hibernate: autoHibernate,
      max_lifetime: maxLifetime,
      expires_at: expiresAt,
    },
    typescript: `const sandbox = await client.sandboxes.restore('${id}'${isPlain ? '' : `, ${toLiteral(options)}`});`,
    python: `sandbox = client.sandboxes.restore(${toPython(id)}${isPlain ? '' : `, ${arguments_}`})`,
  };
}
