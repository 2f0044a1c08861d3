//! One address with its methods. A method is served only together with what its callers need: there is no other way to add
//! one, so none is forgotten.

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter};

use super::Shared;
use super::auth::RequiredPermission;
use super::middleware::Guarded;

/// Handlers of one address.
pub struct Route {
    address: &'static str,
    methods: MethodRouter<Shared>,
    served: Vec<(Method, RequiredPermission)>,
}

impl Route {
    /// At first nothing is.
    pub fn at(address: &'static str) -> Self {
        Self {
            address,
            methods: MethodRouter::new(),
            served: Vec::new(),
        }
    }

    /// `GET`, and `HEAD`.
    pub fn get<H: Handler<T, Shared>, T: 'static>(self, required: RequiredPermission, handler: H) -> Self {
        self.on(MethodFilter::GET, Method::GET, required, handler)
    }

    /// `POST`.
    pub fn post<H: Handler<T, Shared>, T: 'static>(self, required: RequiredPermission, handler: H) -> Self {
        self.on(MethodFilter::POST, Method::POST, required, handler)
    }

    /// `PUT`.
    pub fn put<H: Handler<T, Shared>, T: 'static>(self, required: RequiredPermission, handler: H) -> Self {
        self.on(MethodFilter::PUT, Method::PUT, required, handler)
    }

    /// `DELETE`.
    pub fn delete<H: Handler<T, Shared>, T: 'static>(self, required: RequiredPermission, handler: H) -> Self {
        self.on(MethodFilter::DELETE, Method::DELETE, required, handler)
    }

    fn on<H: Handler<T, Shared>, T: 'static>(
        mut self,
        filter: MethodFilter,
        method: Method,
        required: RequiredPermission,
        handler: H,
    ) -> Self {
        self.methods = self.methods.on(filter, Guarded { required, handler });
        self.served.push((method, required));
        self
    }

    /// Adds a handler for all other methods, where the router does not know which exist. It has no requirement, so it must
    /// reveal nothing else.
    pub fn otherwise<H: Handler<T, Shared>, T: 'static>(mut self, handler: H) -> Self {
        let required = RequiredPermission::Public;
        self.methods = self.methods.fallback(Guarded { required, handler });
        self
    }

    /// The address, as axum writes it.
    pub fn address(&self) -> &'static str {
        self.address
    }

    /// The methods that are served, `HEAD` beside `GET` not told, and what each of them requires.
    pub fn served(&self) -> impl Iterator<Item = &(Method, RequiredPermission)> {
        self.served.iter()
    }

    /// The methods, each behind its door.
    pub fn methods(self) -> MethodRouter<Shared> {
        self.methods
    }
}
