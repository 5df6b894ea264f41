import { ButtonLink } from '../../ui/Button.tsx';
import { Page } from '../../ui/Page.tsx';
import { Empty } from '../../ui/states.tsx';

/** For a member who belongs to no team: sandboxes belong to teams. */
export function NoTeam() {
  return (
    <Page title="No team">
      <Empty
        icon="people"
        title="You are in no team of this organization"
        action={<ButtonLink href="/people">See people and teams</ButtonLink>}
      >
        Sandboxes belong to teams. Ask an owner of the organization to add you to one.
      </Empty>
    </Page>
  );
}
