//! Who acts, and how far that reaches.

use domain::ids::{ManagementTokenId, PersonId, TenantId};
use domain::management_tokens::{Permission, masked};
use domain::people::Role;
use store::management_tokens::ManagementTokenRow;
use store::people::Person;

use crate::ControlError;

/// Who acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A person who signed in.
    Person(PersonActor),
    /// A program with a management token.
    Token(TokenActor),
    /// The program itself: set-up, demo, housekeeping. May do everything.
    System {
        /// What the audit log says: `housekeeping`.
        name: &'static str,
    },
    /// Whoever runs the program for one thing, where it has the database and its secrets. May do everything.
    CommandLine {
        /// Who and where, in place of an address: `ada@gateway-1`.
        from: String,
    },
}

/// A person who signed in, as read for this request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonActor {
    /// Which one.
    pub id: PersonId,
    /// What the audit log says.
    pub email: String,
    /// What they are called.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// Whose they are: managers and members only.
    pub tenant_id: Option<TenantId>,
    /// The address they come from.
    pub peer: Option<String>,
}

/// A program with a management token, as read for this request. It acts as an operator, or for one tenant as its manager
/// does, and within its permissions, which the API's routes ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenActor {
    /// Which token.
    pub id: ManagementTokenId,
    /// What the audit log says: the token's name and the part of its text that may be shown.
    pub label: String,
    /// Whose it is; the whole installation's when absent.
    pub tenant_id: Option<TenantId>,
    /// What it may do.
    pub permissions: Vec<Permission>,
    /// The address it comes from.
    pub peer: Option<String>,
}

/// What an actor may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Everything.
    Everything,
    /// One tenant.
    Tenant(TenantId),
    /// Own keys and own use within one tenant.
    Own(TenantId, PersonId),
}

impl Reach {
    /// Whether something of this tenant, and of this person if it is anybody's, is within it.
    pub(crate) fn covers(self, tenant: TenantId, owner: Option<PersonId>) -> bool {
        match self {
            Self::Everything => true,
            Self::Tenant(own) => tenant == own,
            Self::Own(own, person) => tenant == own && owner == Some(person),
        }
    }
}

impl Actor {
    /// The person, as read for this request, coming from `peer`.
    pub fn person(person: &Person, peer: Option<String>) -> Self {
        Self::Person(PersonActor {
            id: person.id,
            email: person.email.clone(),
            name: person.name.clone(),
            role: person.role,
            tenant_id: person.tenant_id,
            peer,
        })
    }

    /// A program that has shown this token, coming from `peer`.
    pub fn token(token: &ManagementTokenRow, peer: Option<String>) -> Self {
        Self::Token(TokenActor {
            id: token.id,
            label: format!("{} ({})", token.name, masked(&token.public_id)),
            tenant_id: token.tenant_id,
            permissions: token.permissions.clone(),
            peer,
        })
    }

    /// What the audit log calls them.
    pub fn label(&self) -> &str {
        match self {
            Self::Person(person) => &person.email,
            Self::Token(token) => &token.label,
            Self::System { name } => name,
            Self::CommandLine { .. } => "command line",
        }
    }

    /// The person's id.
    pub fn person_id(&self) -> Option<PersonId> {
        match self {
            Self::Person(person) => Some(person.id),
            Self::Token(_) | Self::System { .. } | Self::CommandLine { .. } => None,
        }
    }

    /// Whether it is the program or whoever runs it, and nobody who asks it from outside.
    pub(crate) fn is_of_the_house(&self) -> bool {
        matches!(self, Self::System { .. } | Self::CommandLine { .. })
    }

    /// The address they come from; of the command line, who runs it where.
    pub fn peer(&self) -> Option<&str> {
        match self {
            Self::Person(person) => person.peer.as_deref(),
            Self::Token(token) => token.peer.as_deref(),
            Self::System { .. } => None,
            Self::CommandLine { from } => Some(from),
        }
    }

    /// What they may see.
    pub fn reach(&self) -> Result<Reach, ControlError> {
        match self {
            Self::System { .. } | Self::CommandLine { .. } => Ok(Reach::Everything),
            Self::Token(token) => Ok(token.tenant_id.map_or(Reach::Everything, Reach::Tenant)),
            Self::Person(person) => match (person.role, person.tenant_id) {
                (Role::Operator | Role::Auditor, _) => Ok(Reach::Everything),
                (Role::Manager, Some(tenant)) => Ok(Reach::Tenant(tenant)),
                (Role::Member, Some(tenant)) => Ok(Reach::Own(tenant, person.id)),
                (Role::Manager | Role::Member, None) => Err(ControlError::Forbidden),
            },
        }
    }

    /// Whether they may change everything.
    pub fn is_operator(&self) -> bool {
        match self {
            Self::System { .. } | Self::CommandLine { .. } => true,
            Self::Person(person) => person.role == Role::Operator,
            Self::Token(token) => token.tenant_id.is_none(),
        }
    }

    /// Whether they may run this tenant: its people and keys.
    pub fn may_run(&self, tenant: TenantId) -> bool {
        match self {
            Self::System { .. } | Self::CommandLine { .. } => true,
            Self::Token(token) => token.tenant_id.is_none_or(|own| own == tenant),
            Self::Person(person) => match person.role {
                Role::Operator => true,
                Role::Manager => person.tenant_id == Some(tenant),
                Role::Auditor | Role::Member => false,
            },
        }
    }

    /// Refuses programs whose token lacks this permission. Others have none and need none.
    pub fn require_permission(&self, permission: Permission) -> Result<(), ControlError> {
        match self {
            Self::Token(token) if !token.permissions.contains(&permission) => Err(ControlError::Forbidden),
            _ => Ok(()),
        }
    }

    /// Refuses everyone but operators, and programs that act as one.
    pub(crate) fn require_operator_in_person(&self) -> Result<(), ControlError> {
        match self {
            Self::Token(_) => Err(ControlError::Forbidden),
            _ => self.require_operator(),
        }
    }

    /// Refuses everyone but operators.
    pub(crate) fn require_operator(&self) -> Result<(), ControlError> {
        if self.is_operator() {
            Ok(())
        } else {
            Err(ControlError::Forbidden)
        }
    }

    /// Cuts down whose rows are asked for to what they may see. Asking for somebody else's is refused, not emptied: an empty
    /// list, or zeros, would look like an answer.
    pub(crate) fn narrow(
        &self,
        tenant: &mut Option<TenantId>,
        owner: &mut Option<PersonId>,
    ) -> Result<(), ControlError> {
        let (own_tenant, own_person) = match self.reach()? {
            Reach::Everything => return Ok(()),
            Reach::Tenant(own) => (own, None),
            Reach::Own(own, person) => (own, Some(person)),
        };
        let is_other = tenant.is_some_and(|asked| asked != own_tenant)
            || own_person.is_some_and(|own| owner.is_some_and(|asked| asked != own));
        if is_other {
            return Err(ControlError::Forbidden);
        }
        *tenant = Some(own_tenant);
        *owner = own_person.or(*owner);
        Ok(())
    }

    /// Refuses everyone who does not see everything.
    pub(crate) fn require_everything(&self) -> Result<(), ControlError> {
        match self.reach()? {
            Reach::Everything => Ok(()),
            Reach::Tenant(_) | Reach::Own(..) => Err(ControlError::Forbidden),
        }
    }

    /// Whether the tenant as a whole is in sight.
    pub(crate) fn sees_tenant(&self, tenant: TenantId) -> Result<bool, ControlError> {
        Ok(match self.reach()? {
            Reach::Everything => true,
            Reach::Tenant(own) => own == tenant,
            Reach::Own(..) => false,
        })
    }
}
