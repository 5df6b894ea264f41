import { useLocation } from 'preact-iso';
import { isOwner, place } from '../../service/session.ts';
import { ButtonLink } from '../../ui/Button.tsx';
import { GuestText } from '../../ui/GuestText.tsx';
import { Page } from '../../ui/Page.tsx';
import '../../styles/organization.css';
import { Invitations } from './Invitations.tsx';
import { Members } from './Members.tsx';
import { OrganizationCard } from './OrganizationCard.tsx';
import { Teams } from './Teams.tsx';

/** `/people`; with `?invite` it asks whom to invite. */
export function People() {
  const { query, route } = useLocation();
  const organization = place.value?.organization;
  if (organization === undefined) return null;
  return (
    <Page
      title="People"
      lead={
        <span>
          Members and teams of{' '}
          <b>
            <GuestText text={organization.name} />
          </b>
        </span>
      }
      actions={
        isOwner.value && (
          <ButtonLink href="/people?invite" kind="primary" icon="plus">
            Invite
          </ButtonLink>
        )
      }
    >
      <Members key={`members-${organization.id}`} />
      {isOwner.value && (
        <Invitations
          key={`invitations-${organization.id}`}
          isAsking={query['invite'] !== undefined}
          onAsked={() => route('/people', true)}
        />
      )}
      <Teams key={`teams-${organization.id}`} />
      <OrganizationCard key={organization.id} organization={organization} />
    </Page>
  );
}
